// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates of a federation: a CA, hubs' certificates and clusters' certificates, as PEM files
// below one directory. It serves the demo, tests and small installations; joining by token comes on top of it.
//
// Certificates are valid from one hour ago, so that a clock that is off by minutes refuses none (I11). Files appear
// under their names complete or not at all; keys are readable by their owner alone; a CA is never replaced.
package pki
