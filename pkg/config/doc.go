// SPDX-License-Identifier: Apache-2.0

// Package config gives every flag of a command two more sources: the environment (ATOLL_<FLAG>) and a YAML file named by
// --config with the same kebab-case keys. A flag wins over the environment, the environment over the file, the file over
// the default.
//
// The flags stay the one place where a setting is declared, typed and described: values of the other sources are set
// through the flag itself, so a bad value gives the same error wherever it stands. Unknown keys in the file are errors.
package config
