// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

// FlushAfter is how long a part of a response of known length may wait for the rest, so that a small response is sent in one write. A
// response of unknown length, such as a stream of events, is sent immediately.
const FlushAfter = 5 * time.Millisecond

// TCPProtocol is the WebSocket subprotocol of a TCP connection to a sandbox's port.
const TCPProtocol = "tcp.atoll.navix.sh"

func portCall(text string) (*federationv1.ReachCall, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return nil, problem.InvalidField("port", text, "1 to 65535")
	}
	return &federationv1.ReachCall{What: &federationv1.ReachCall_Port{Port: &federationv1.PortReach{Port: int32(port)}}}, nil
}

func (h *Handler) port(w http.ResponseWriter, r *http.Request, t target) error {
	call, err := portCall(t.port)
	if err != nil {
		return err
	}
	if kind := t.kind(); kind != t.what {
		r = r.WithContext(context.WithValue(r.Context(), asKey{}, kind))
	}
	if t.rest == "" && slices.Contains(websocket.Subprotocols(r), TCPProtocol) {
		return h.connect(w, r, t.id, call)
	}
	if t.rest == "" {
		// Links of a page are relative to its folder.
		to := url.URL{Path: path.Base(r.URL.Path) + "/", RawQuery: r.URL.RawQuery}
		w.Header().Set("Location", to.String())
		w.WriteHeader(http.StatusPermanentRedirect)
		return nil
	}
	_ = http.NewResponseController(w).EnableFullDuplex() // a port may respond before it has read the whole request
	dialled := &dialled{}
	defer dialled.close()
	ctx := context.WithValue(r.Context(), forwarded{}, forwarded{
		target: t, host: r.Host, call: call, dialled: dialled, caller: h.caller(r.Context()),
	})
	h.proxy.ServeHTTP(final{w}, r.WithContext(ctx))
	return nil
}

// connect serves a TCP connection over a WebSocket.
func (h *Handler) connect(w http.ResponseWriter, r *http.Request, id string, call *federationv1.ReachCall) error {
	if err := wants(r, TCPProtocol); err != nil {
		return err
	}
	tunnel, err := h.open(r.Context(), id, call)
	if err != nil {
		return err
	}
	socket, err := upgrade(w, r, TCPProtocol)
	if err != nil {
		tunnel.Close(err)
		return nil // the upgrader has answered
	}
	if err := Join(&tcpCaller{socket: socket}, tunnel); err != nil {
		h.log.V(1).Info("A connection broke off", "sandbox", id, "port", call.GetPort().GetPort(), "reason", err.Error())
	}
	return nil
}

// forwarded describes a proxied request.
type forwarded struct {
	target
	host    string // the host name that the caller used
	call    *federationv1.ReachCall
	dialled *dialled
	caller  string // see Handler.Caller
}

func forwardedOf(ctx context.Context) forwarded {
	f, _ := ctx.Value(forwarded{}).(forwarded)
	return f
}

// newProxy returns a proxy to the port in a request's context.
func (h *Handler) newProxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:        rewrite,
		ModifyResponse: confine,
		FlushInterval:  FlushAfter,
		Transport:      h.transport,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			var known *problem.Error
			if !errors.As(err, &known) {
				f := forwardedOf(r.Context())
				known = problem.New(problem.Unavailable, "port %s of sandbox %s did not respond with HTTP: %s", f.port, f.id,
					validate.Clip(err.Error()))
			}
			known.Write(w)
		},
	}
}

// newTransport returns a transport to the port in a request's context. expect is how long a body waits for 100-continue.
func (h *Handler) newTransport(expect time.Duration) pooled {
	transport := &http.Transport{
		DisableCompression: true, MaxResponseHeaderBytes: maxHeadBytes, ExpectContinueTimeout: expect,
		MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdleOfPort, IdleConnTimeout: idleTunnel,
	}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		f := forwardedOf(ctx)
		tunnel, err := h.open(ctx, f.id, f.call)
		if known := (*problem.Error)(nil); errors.As(err, &known) && known.Reason == problem.RateLimited {
			h.closeIdle() // idle tunnels hold shares, which another conversation needs now
			tunnel, err = h.open(ctx, f.id, f.call)
		}
		if err != nil {
			return nil, err
		}
		return NewConn(tunnel), nil
	}
	return pooled{transport}
}

// closeIdle closes the tunnels that wait for a next request.
func (h *Handler) closeIdle() {
	h.transport.CloseIdleConnections()
	h.asking.CloseIdleConnections()
}

// rewrite builds the request to the sandbox, where the port is on localhost.
func rewrite(p *httputil.ProxyRequest) {
	f := forwardedOf(p.In.Context())
	host := "localhost:" + f.port
	p.SetXForwarded()
	p.Out.Header.Set("X-Forwarded-Prefix", f.base)
	p.Out.Header.Del("Authorization") // the caller's credentials for Atoll
	if f.base != "" && p.In.Header.Get("Sec-Fetch-Site") != "" {
		p.Out.Header.Del("Cookie") // cookies belong to the host, and so to everything else served there
	}
	if p.In.Header.Get("Origin") != "" {
		p.Out.Header.Set("Origin", "http://"+host)
	}
	p.Out.Host = host
	p.Out.URL.Scheme, p.Out.URL.Host = "http", host
	p.Out.URL.Path, p.Out.URL.RawPath = f.rest, ""
	if unescaped, err := url.PathUnescape(f.rest); err == nil {
		p.Out.URL.Path, p.Out.URL.RawPath = unescaped, f.rest
	}
	p.Out.URL.RawQuery = p.In.URL.RawQuery // the proxy has removed what Go does not parse, such as a;b
}

// tcpCaller is the caller's end of a TCP connection.
type tcpCaller struct {
	*socket
	ends atomic.Int32 // the number of sides that have sent their last byte
}

func (c *tcpCaller) Recv() ([]byte, error) {
	for {
		piece, begins, err := c.next(0)
		switch {
		case err != nil:
			return nil, err
		case len(piece) > 0:
			return piece, nil
		case begins:
			c.ended()
			return nil, io.EOF
		}
	}
}

func (c *tcpCaller) CloseSend() error {
	defer c.ended()
	return c.Send(nil)
}

func (c *tcpCaller) ended() {
	if c.ends.Add(1) == 2 {
		_ = c.part(nil)
	}
}
