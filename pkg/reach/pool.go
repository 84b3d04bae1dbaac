// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"
)

// Bounds of the tunnels that wait for another request.
const (
	maxIdle       = 256 // of one handler
	maxIdleOfPort = 4   // of one caller to one port
	idleTunnel    = 2 * time.Second
)

// pooled sends requests through tunnels to ports. A tunnel serves successive requests of one caller, to one port and of one kind.
type pooled struct{ *http.Transport }

// RoundTrip implements http.RoundTripper, for a request whose destination is in its context.
func (p pooled) RoundTrip(r *http.Request) (*http.Response, error) {
	f := forwardedOf(r.Context())
	out := r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if c, ok := info.Conn.(*conn); ok {
				f.dialled.use(c)
			}
		},
		PutIdleConn: func(err error) {
			if err == nil {
				f.dialled.forget()
			}
		},
	}))
	to := *r.URL
	to.Host = f.pool(kindIn(r.Context()))
	if out.URL = &to; out.Host == "" {
		out.Host = r.URL.Host
	}
	out.Close = out.Close || f.caller == "" // no other request may use its tunnel, so it must not be kept
	response, err := p.Transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	response.Request = r
	return response, nil
}

// pool returns the name of the set of tunnels that may serve a request. No two callers have the same name. Each request of a caller without
// a name gets a set of its own, because the transport keeps a tunnel that it opened for a cancelled request, and uses it for the next
// request with the same name.
func (f forwarded) pool(kind string) string {
	name := strconv.AppendQuote(nil, cmp.Or(f.caller, rand.Text()))
	name = strconv.AppendQuote(name, f.id)
	name = strconv.AppendInt(name, int64(f.call.GetPort().GetPort()), 10)
	sum := sha256.Sum256(strconv.AppendQuote(name, kind))
	return hex.EncodeToString(sum[:])
}

// dialled holds the tunnels that a request uses. When the request ends, it closes those that were not returned to the pool: the proxy
// leaves a tunnel open if its port switches to a protocol that was not requested.
type dialled struct {
	mu    sync.Mutex
	over  bool
	using []*conn
}

func (d *dialled) use(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		_ = c.Close()
		return
	}
	c.begin()
	d.using = append(d.using, c)
}

// forget releases the request's tunnel, which was returned to the pool and may serve another request. A request uses one tunnel at a time.
func (d *dialled) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.using = nil
}

func (d *dialled) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	for _, c := range d.using {
		_ = c.Close()
	}
}
