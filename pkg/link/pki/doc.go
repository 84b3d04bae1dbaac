// SPDX-License-Identifier: Apache-2.0

// Package pki creates a small federation's certificates, as PEM files below one directory: a CA, hubs', clusters'.
//
// Certificates are valid from one hour ago; because clocks may differ (I11). Files appear complete; only the owner reads keys; a CA is
// never replaced.
package pki
