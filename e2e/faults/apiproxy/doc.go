// SPDX-License-Identifier: Apache-2.0

// Package apiproxy is a proxy with an API server's faults: it delays, refuses, loses responses, or delivers requests late.
//
// In: the server's address and certificate and, at any time, Rules. Out: an address for kubeconfigs. Credentials in requests pass; client
// certificates do not.
package apiproxy
