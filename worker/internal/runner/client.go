// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newClient uses separate connections for writes, because an API server accepts a limited number of streams per connection, and watches
// never release theirs.
func newClient(cfg *rest.Config, opts client.Options) (client.Client, error) {
	cfg = rest.CopyConfig(cfg)
	// client-go shares one transport between equal configurations. A separate dialer makes this one different.
	cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("building the client for writes: %w", err)
	}
	opts.HTTPClient = httpClient
	return client.New(cfg, opts)
}
