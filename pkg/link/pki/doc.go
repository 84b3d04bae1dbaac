// SPDX-License-Identifier: Apache-2.0

// Package pki creates the certificates of a small federation, as PEM files below one directory: of a CA, hubs and clusters.
//
// Certificates are valid from one hour before they are issued; because clocks may differ (I11). Files appear only when they are complete.
// Only the owner can read keys. A CA is never replaced.
package pki
