// SPDX-License-Identifier: Apache-2.0

// Package apiproxy is a proxy for an API server: it delays, refuses, drops responses, or delivers requests late, by method and
// path. Package proxy has the faults of networks; this has the faults of API servers.
//
// In go the server's address, its certificate (so clients notice no proxy) and, at any time, Rules. Out comes an address for
// kubeconfigs. Only credentials in requests pass; a client certificate ends here.
package apiproxy
