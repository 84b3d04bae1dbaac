// SPDX-License-Identifier: Apache-2.0

// Command atollctl is the hub's and the workers' public API at a terminal: what clusters and Envs there are, what is
// running, where a claim would go and why, and creating and releasing sandboxes.
//
// Every command is one or two calls of api/sandbox/v1 and one rendering; output is a table for people, or json, yaml and
// name for programs. Errors are the API's own, with the fields that were wrong and what would be valid. Only pki calls
// no server: it makes the certificates of a small installation, on pkg/link/pki.
package main
