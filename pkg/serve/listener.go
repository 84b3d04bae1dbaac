// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"navix.sh/atoll/pkg/pace"
)

// errPace closes a connection that sends more than it may before its caller is authenticated.
var errPace = &net.OpError{Op: "read", Err: errors.New("more than may be sent without credentials")}

// Limit returns a listener that closes a new connection if the total or the number per address is exceeded. A connection counts until it is
// closed or its Admit is called. Until then it is read no faster than DefaultLimits allow.
func Limit(lis net.Listener, inAll, perAddress int) net.Listener {
	return limit(lis, inAll, perAddress, newPaces(DefaultLimits(), nil))
}

func limit(lis net.Listener, inAll, perAddress int, p *paces) net.Listener {
	return &limited{Listener: lis, inAll: inAll, perAddress: perAddress, paces: p, from: map[netip.Prefix]int{}}
}

type limited struct {
	net.Listener
	inAll, perAddress int
	paces             *paces // nil: connections are read as fast as they send

	mu   sync.Mutex
	all  int
	from map[netip.Prefix]int
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		origin := pace.Origin(conn.RemoteAddr())
		if admitted := l.enter(conn, origin); admitted != nil {
			boundUnsent(conn)
			return admitted, nil
		}
		_ = conn.Close()
	}
}

func (l *limited) enter(conn net.Conn, origin netip.Prefix) *counted {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.inAll || l.from[origin] >= l.perAddress {
		return nil
	}
	c := &counted{Conn: conn, leave: sync.OnceFunc(func() { l.leave(origin) })}
	if l.paces != nil {
		if c.meter = l.paces.accept(origin); c.meter == nil {
			return nil
		}
	}
	l.all++
	l.from[origin]++
	return c
}

func (l *limited) leave(origin netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.from[origin]--; l.from[origin] == 0 {
		delete(l.from, origin)
	}
}

// counted is a connection of a limited listener.
type counted struct {
	net.Conn
	leave func()
	meter *meter
}

// Admit stops counting a connection whose peer is authenticated.
func (c *counted) Admit() {
	c.meter.admit("")
	c.leave()
}

func (c *counted) Read(b []byte) (int, error) {
	if !c.meter.stranger() {
		return c.Conn.Read(b)
	}
	if err := c.meter.wait(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b[:min(len(b), strangersRead)])
	c.meter.spend(perRead + float64(n)*perByte)
	return n, err
}

func (c *counted) Close() error {
	defer c.leave()
	c.meter.end()
	return c.Conn.Close()
}

// CloseWrite is that of TCP.
func (c *counted) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Bounds of the operators' listeners: metrics and health. Their callers are few and their requests small.
const (
	plainConnections = 128
	plainPerAddress  = 64
	plainHeader      = 8 << 10
	plainHeaderTime  = 5 * time.Second
	plainTime        = 30 * time.Second
)

// PlainServer returns a server of requests without bodies, such as for metrics and health, and the listener to run it on. On
// loopback it accepts loopback's host names only.
func PlainServer(lis net.Listener, h http.Handler) (*http.Server, net.Listener) {
	local := isLoopback(hostOf(lis.Addr().String()))
	named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := (Web{}).named(Access(!local), r); err != nil {
			refuse(w, err)
			return
		}
		h.ServeHTTP(w, r)
	})
	server := &http.Server{
		Handler: named, MaxHeaderBytes: plainHeader,
		ReadHeaderTimeout: plainHeaderTime, ReadTimeout: plainHeaderTime, WriteTimeout: plainTime, IdleTimeout: 2 * plainTime,
	}
	return server, Limit(lis, plainConnections, plainPerAddress)
}

// Plain runs a PlainServer on lis until ctx ends.
func Plain(ctx context.Context, lis net.Listener, h http.Handler) error {
	server, lis := PlainServer(lis, h)
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", lis.Addr(), err)
	}
	return nil
}
