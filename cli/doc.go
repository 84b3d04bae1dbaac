// SPDX-License-Identifier: Apache-2.0

// Command atollctl calls the public API of hub and workers from a terminal.
//
// A command makes one or two calls of api/sandbox/v1 and renders a table, json, yaml or name. Errors are the API's own. Only pki calls no
// server: it creates a small installation's certificates (pkg/link/pki).
package main
