// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/e2e/must"
)

// An API server that does not respond holds up a conversation no longer than its context: neither the upgrade nor the streams of a port.
func TestOpeningEndsWithItsContext(t *testing.T) {
	for name, open := range map[string]func(ctx context.Context, conn net.Conn) error{
		"streams": func(ctx context.Context, conn net.Conn) error {
			over, err := overSPDY(conn)
			if err != nil {
				return err
			}
			_, err = openPort(ctx, over, 80)
			return err
		},
		"upgrade": func(ctx context.Context, conn net.Conn) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://apiserver", nil)
			if err != nil {
				return err
			}
			response, err := (&upgrade{dial: func(*http.Request) (net.Conn, error) { return conn, nil }}).RoundTrip(request)
			if err == nil {
				err = response.Body.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, theirs) }()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				err := open(ctx, ours)
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
					t.Errorf("opening returned %v after %s, want the context's error after 1s", err, took)
				}
				if _, err := ours.Write([]byte("x")); err == nil {
					t.Error("the connection is open still")
				}
				must.Succeed(t, theirs.Close())
				time.Sleep(time.Minute) // of the fake clock: CreateStream gives up
			})
		})
	}
}
