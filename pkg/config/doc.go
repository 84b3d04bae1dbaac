// SPDX-License-Identifier: Apache-2.0

// Package config adds two sources for every flag: the environment (ATOLL_<FLAG>) and a YAML file (--config) with the same kebab-case keys.
// A flag takes precedence over the environment, the environment over the file, and the file over the default. If two flags set the same
// thing, SourceOf shows which takes precedence.
//
// A setting is declared only by its flag. Every source sets it through the flag, so errors are the same. Unknown keys are errors.
package config
