// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newClient gives writes connections of their own: an API server takes a limited number of streams on one, and watches
// hold theirs for ever.
func newClient(cfg *rest.Config, opts client.Options) (client.Client, error) {
	cfg = rest.CopyConfig(cfg)
	// client-go shares one transport between equal configurations; a dialer of its own makes this one unequal.
	cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("building the client for writes: %w", err)
	}
	opts.HTTPClient = httpClient
	return client.New(cfg, opts)
}
