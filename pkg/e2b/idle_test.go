// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/serve"
)

// closedConn notes that its owner has closed it.
type closedConn struct {
	net.Conn
	closed *atomic.Bool
}

func (c closedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// A connection that serves no request ends before the server closes it; because a claim that meets that moment fails.
func TestAnUnusedConnectionEndsBeforeTheServerClosesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, inside := serve.DefaultLimits(), NewInside()
		busy := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })
		behind := &http.Server{Handler: busy, ReadHeaderTimeout: limits.HeaderTimeout, IdleTimeout: limits.IdleTimeout}
		var running sync.WaitGroup
		running.Go(func() { _ = behind.Serve(inside) })
		var dials atomic.Int32
		var closed atomic.Bool
		g, err := New(Options{
			Dial: func(ctx context.Context, from string) (net.Conn, error) {
				if dials.Add(1) == 1 {
					return inside.Dial(ctx, from)
				}
				time.Sleep(2 * time.Second) // the first connection is idle by then, and serves the second request
				conn, err := inside.Dial(ctx, from)
				return closedConn{conn, &closed}, err
			},
			Key: bytes.Repeat([]byte{7}, KeySize), Now: time.Now, Log: logr.Discard(),
		})
		must.Succeed(t, err)
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:80/", http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				response, err := g.client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			})
			synctest.Wait() // it is being served, or dials
		}
		calls.Wait()
		if n := dials.Load(); n != 2 {
			t.Fatalf("%d connections were made, want 2", n)
		}
		synctest.Wait()
		if closed.Load() {
			t.Fatal("the second connection is closed at once")
		}
		time.Sleep(limits.HeaderTimeout - time.Nanosecond)
		synctest.Wait()
		if !closed.Load() {
			t.Errorf("a connection without a request is open for %s, when the server closes it", limits.HeaderTimeout)
		}
		g.Close()
		must.Succeed(t, behind.Close())
		running.Wait()
	})
}
