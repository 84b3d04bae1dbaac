// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/http2frames"
	"navix.sh/atoll/pkg/problem"
)

// floodFor is how long floods last, in the bubble's time.
const floodFor = 10 * time.Second

// flooded is a connection in a bubble whose other end writes one frame again and again. It returns how many arrived.
func flooded(p *paces, frame []byte, caller string) (frames float64) {
	server, client := net.Pipe()
	conn := newPaced(&counted{Conn: server, leave: func() {}, meter: p.accept(netip.Prefix{})}, time.Minute, newUntaken(1<<30, time.Hour))
	if caller != "" {
		conn.streams.meter.admit(caller)
	}
	go func() {
		var text []byte
		for range 1000 {
			text = append(text, frame...)
		}
		_, err := client.Write([]byte(http2frames.Preface))
		for err == nil {
			_, err = client.Write(text)
		}
	}()
	time.AfterFunc(floodFor, func() { _, _ = client.Close(), conn.Close() })
	in, bytes := make([]byte, 32<<10), 0
	for {
		n, err := conn.Read(in)
		if bytes += n; err != nil {
			return float64(bytes) / float64(len(frame))
		}
	}
}

// I14: what a connection sends before a caller is authenticated is read at the pace of strangers, whatever it is; what comes after,
// apart from calls and their data, at that of its caller.
func TestI14FloodsAreReadAtAPace(t *testing.T) {
	frame := func(kind, flags byte, payload int) []byte {
		return append([]byte{0, byte(payload >> 8), byte(payload), kind, flags, 0, 0, 0, 1}, make([]byte, payload)...)
	}
	const seconds = 12 // and the burst
	for name, c := range map[string]struct {
		frame  []byte
		caller string
		most   float64
		least  float64
	}{
		"pings":            {frame: frame(6, 0, 8), most: seconds * 32 * 25},
		"settings":         {frame: frame(4, 0, 12), most: seconds * 32 * 25},
		"resets":           {frame: append(frame(http2frames.Headers, 4, 40), frame(http2frames.Reset, 0, 4)...), most: seconds * 25},
		"empty data":       {frame: frame(http2frames.Data, 0, 0), most: seconds * 32 * 25},
		"large headers":    {frame: frame(http2frames.Headers, 4, 16<<10), most: seconds * 5},
		"a caller's pings": {frame: frame(6, 0, 8), caller: "a", most: seconds * 16 * 500, least: 10 * 16 * 500},
		"a caller's nulls": {frame: frame(http2frames.Data, 0, 0), caller: "a", most: seconds * 16 * 500},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// One read may be more than there is left.
				got := flooded(newPaces(Limits{}, nil), c.frame, c.caller)
				if got > c.most+float64(32<<10/len(c.frame)) || got < c.least {
					t.Errorf("%.0f frames were read in %s, want %.0f to %.0f", got, floodFor, c.least, c.most)
				}
			})
		})
	}
	// Without a pace no time would pass in a bubble.
	m := newPaces(Limits{}, nil).accept(netip.Prefix{})
	m.admit("a")
	m.frames(1e6, 1e6, 0)
	if wait, _ := m.debt(); wait > 0 {
		t.Errorf("a caller's calls and data wait %s to be read", wait)
	}
}

// I14: input is charged after it is read. So a read before authentication is small, also where TLS has decrypted more.
func TestI14StrangersAreReadInSmallPieces(t *testing.T) {
	const size = 8 * strangersRead
	cert, roots := selfSigned(t)
	for name, wrap := range map[string]func(server, client net.Conn) (net.Conn, net.Conn){
		"HTTP": func(server, client net.Conn) (net.Conn, net.Conn) { return server, client },
		"gRPC with TLS": func(server, client net.Conn) (net.Conn, net.Conn) {
			decrypted := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true})
			return newPaced(decrypted, time.Minute, newUntaken(1, time.Minute)),
				tls.Client(client, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", DynamicRecordSizingDisabled: true})
		},
	} {
		inner, outer := net.Pipe()
		m := newPaces(Limits{}, nil).accept(netip.Prefix{})
		server, client := wrap(&counted{Conn: inner, leave: func() {}, meter: m}, outer)
		go func() {
			_, _ = client.Write(make([]byte, size))
			_ = outer.Close()
		}()
		in := make([]byte, size)
		before, err := server.Read(in)
		must.Succeed(t, err)
		m.admit("a")
		after, _ := server.Read(in)
		if before != strangersRead || after != size-strangersRead {
			t.Errorf("%s: %d bytes were read before the caller was known and %d after, want %d and %d", name, before, after, strangersRead,
				size-strangersRead)
		}
		_ = server.Close()
	}
}

// I14: one address does not use up what another has, and gets back what it took to authenticate its callers.
func TestI14AddressesHaveTheirOwnPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(Limits{}, nil)
		bad, good := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
		n := 0
		most := DefaultLimits().StrangerRate*7 + 1
		for n <= most && p.accept(bad) != nil {
			n++
		}
		if n > most {
			t.Errorf("%d connections of one address at once, want at most %d", n, most)
		}
		for i := range 10 * n {
			m := p.accept(good)
			if m == nil || m.wait() != nil {
				t.Fatalf("connection %d of another address is refused", i)
			}
			m.spend(1)
			m.admit("caller")
		}
		// Callers of one address that connect at once authenticate one after the other.
		proxy := netip.MustParsePrefix("192.0.2.3/32")
		var meters []*meter
		for range DefaultLimits().PerAddress {
			meters = append(meters, p.accept(proxy))
		}
		began := time.Now()
		for i, m := range meters {
			if m == nil || m.wait() != nil {
				t.Fatalf("connection %d of a proxy is refused", i)
			}
			m.spend(2)
			if m.wait() != nil {
				t.Fatalf("connection %d of a proxy is closed", i)
			}
			m.admit("caller")
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the callers of a proxy waited %s", took)
		}
		time.Sleep(5 * time.Second)
		if p.accept(bad) == nil {
			t.Error("the address stays refused")
		}
	})
}

// I14: a listener closes the connections of an address that is far over its pace, and slows those that it takes.
func TestI14ListenersPaceConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	const rate = 4
	lis := limit(inner, 1000, 1000, newPaces(Limits{StrangerRate: rate}, nil))
	taken := make(chan net.Conn, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for conn, err := lis.Accept(); err == nil; conn, err = lis.Accept() {
			taken <- conn
		}
	}()
	closed := 0
	for range 50 {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			closed++
			continue
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			closed++
		}
	}
	must.Succeed(t, lis.Close())
	<-done
	close(taken)
	for conn := range taken {
		if !meterOf(conn).stranger() {
			t.Error("a connection is not metered")
		}
		_ = conn.Close()
	}
	if closed == 0 {
		t.Error("50 connections at once are taken, of an address that may make 4 a second")
	}
}

// A connection that would wait for long is closed, and one that waits is freed by its caller's credentials or its end.
func TestPacedConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces(Limits{}, nil)
		accept := func(spent float64) *meter {
			m := p.accept(netip.Prefix{})
			m.spend(spent)
			return m
		}
		if m := accept(1000); !errors.Is(m.wait(), errPace) {
			t.Error("a connection far over its pace goes on")
		}
		time.Sleep(time.Minute)
		for _, c := range []struct {
			what string
			free func(m *meter)
			want error
		}{{"its caller", func(m *meter) { m.admit("a") }, nil}, {"its end", (*meter).end, net.ErrClosed}} {
			m := accept(100)
			began := time.Now()
			time.AfterFunc(time.Second/2, func() { c.free(m) })
			if err := m.wait(); !errors.Is(err, c.want) || time.Since(began) != time.Second/2 {
				t.Errorf("%s: %v after %s", c.what, err, time.Since(began))
			}
			time.Sleep(time.Minute)
		}
	})
}

// I14: a caller's calls have a rate, over either protocol; others have their own.
func TestI14CallsHaveARate(t *testing.T) {
	slow := limits(func(l *Limits) { l.CallRate = 1 })
	address := start(t, secured, slow)
	client := &http.Client{}
	t.Cleanup(client.CloseIdleConnections)
	get := func(caller string) int {
		code, _, _ := rest(t, client, "GET", "http://"+address+"/v1/claims/x?namespace=d", "", "Authorization", caller)
		return code
	}
	codes := map[int]int{}
	began := time.Now()
	for range 5 { // one a second
		codes[get("a")]++
	}
	if took := time.Since(began); codes[200] != 5 || took < 3*time.Second {
		t.Errorf("REST, one after the other: %v in %s", codes, took)
	}
	g := newGuard(Limits{}.filled(), admitKnown)
	g.paces = newPaces(Limits{CallRate: 1}, nil)
	var refused *problem.Error
	for i := range 10 {
		if _, err := g.paces.call("a"); err != nil {
			if refused = problem.FromError(err); i < 3 {
				t.Errorf("call %d: %v", i, err)
			}
		}
	}
	if refused == nil || refused.Reason != problem.RateLimited {
		t.Errorf("ten calls at once: %v", refused)
	}
	if _, err := g.paces.call("b"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	if _, err := g.check(metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", "a")), createMethod); err == nil ||
		problem.FromError(err).Reason != problem.RateLimited {
		t.Errorf("gRPC: %v", err)
	}
}
