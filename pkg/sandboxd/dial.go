// SPDX-License-Identifier: Apache-2.0

package sandboxd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"navix.sh/atoll/api/envd"
)

// Dial returns a client that makes a new connection for each request by calling dial. It follows no redirects. A body that waits for the
// daemon is sent after wait in any case; 0: immediately.
func Dial(token string, wait time.Duration, dial func(ctx context.Context) (net.Conn, error)) *Client {
	return &Client{
		Base: fmt.Sprintf("http://localhost:%d", envd.Port), Token: token,
		HTTP: &http.Client{
			Transport: &http.Transport{
				DisableKeepAlives: true, DisableCompression: true, ExpectContinueTimeout: wait,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}
