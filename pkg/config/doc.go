// SPDX-License-Identifier: Apache-2.0

// Package config adds two sources for every flag of a command: the environment (ATOLL_<FLAG>) and a YAML file named by --config
// with the same kebab-case keys. A flag wins over the environment, the environment over the file, the file over the default.
//
// A setting is declared, typed and described only by its flag. Values of the other sources are set through the flag, so a bad
// value gives the same error from every source. Unknown keys in the file are errors.
package config
