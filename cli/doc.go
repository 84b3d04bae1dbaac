// SPDX-License-Identifier: Apache-2.0

// Command atollctl calls the public API of hub and workers from a terminal: it lists clusters, Envs and sandboxes, explains
// where a claim would go and why, and creates and releases sandboxes.
//
// Every command makes one or two calls of api/sandbox/v1 and renders the result: a table for people, or json, yaml and name for
// programs. Errors are the API's own, with the wrong fields and the valid values. Only pki calls no server: it creates the
// certificates of a small installation with pkg/link/pki.
package main
