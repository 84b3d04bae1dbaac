// SPDX-License-Identifier: Apache-2.0

// Package config adds two sources for every flag: the environment (ATOLL_<FLAG>) and a YAML file (--config) with the same kebab-case keys.
// A flag wins over the environment, that over the file, that over the default. Of two flags for one thing, SourceOf tells the nearer one.
//
// Only its flag declares a setting. Every source sets it through the flag, so errors are the same. Unknown keys are errors.
package config
