// SPDX-License-Identifier: Apache-2.0

// Package apiproxy stands in front of an API server and is slow, refuses, loses answers, or lets requests arrive late,
// by method and path. Package proxy does to connections what networks do; this does what API servers do.
//
// In go the server's address, its certificate (clients are to notice nothing) and, at any time, Rules; out comes an address
// for kubeconfigs. Only credentials that travel in requests pass: a client certificate ends here.
package apiproxy
