// SPDX-License-Identifier: Apache-2.0

// Package pki creates the certificates of a federation, as PEM files below one directory: a CA, hubs' certificates and clusters'
// certificates. It serves the demo, tests and small installations; joining by token builds on it.
//
// Certificates are valid from one hour ago; because a clock that is minutes off must not refuse them (I11). A file appears under
// its name complete or not at all; only its owner can read a key; a CA is never replaced.
package pki
