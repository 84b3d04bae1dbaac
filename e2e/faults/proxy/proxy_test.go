// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is how long nothing may arrive where nothing must; patience is how long to wait for what must.
const (
	quiet    = 50 * time.Millisecond
	patience = 10 * time.Second
)

// echo starts a server that returns its input, and a proxy to it.
func echo(t *testing.T) *Proxy {
	t.Helper()
	listener := testserver.Listen(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	p, err := Listen(listener.Addr().String())
	must.Succeed(t, err)
	t.Cleanup(func() {
		must.Succeed(t, errors.Join(p.Close(), listener.Close()))
		serving.Wait()
	})
	return p
}

type client struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, p *Proxy) client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Address())
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return client{t, conn}
}

func (c client) say(text string) {
	c.t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		c.t.Fatalf("saying %q: %v", text, err)
	}
}

// hear reads until text has arrived, and fails on anything else.
func (c client) hear(text string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	got := make([]byte, len(text))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != text {
		c.t.Fatalf("heard %q and %v, want %q", got[:n], err, text)
	}
}

func (c client) hearNothing() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(quiet))
	var got [64]byte
	if n, err := c.Read(got[:]); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard %q and %v, want nothing", got[:n], err)
	}
}

// end reads until the connection is over.
func (c client) end() error {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	_, err := c.Read(make([]byte, 1))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("the connection goes on: %v", err)
	}
	return err
}

// mustBeReset makes a connection that must be reset at once, perhaps before it is established.
func mustBeReset(t *testing.T, p *Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Address())
	if err != nil {
		return
	}
	defer conn.Close()
	_ = client{t, conn}.end()
}

func TestForwards(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	c.say("hello")
	c.hear("hello")
	must.Succeed(t, c.Conn.(*net.TCPConn).CloseWrite())
	if err := c.end(); !errors.Is(err, io.EOF) {
		t.Errorf("the end arrived as %v", err)
	}
}

func TestCut(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	c.say("hello")
	c.hear("hello")
	p.Set(Faults{Cut: true})
	if err := c.end(); errors.Is(err, io.EOF) {
		t.Error("the connection was closed, not reset")
	}
	mustBeReset(t, p)
	p.Set(Faults{})
	c = dial(t, p)
	c.say("again")
	c.hear("again")
}

// lossy returns how many connections have lost bytes.
func lossy(p *Proxy) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		if c.lossy {
			n++
		}
	}
	return n
}

func TestHalfOpen(t *testing.T) {
	for name, faults := range map[string]Faults{
		"both ways": Both(Way{Swallow: true}), "to the target": {Up: Way{Swallow: true}}, "from the target": {Down: Way{Swallow: true}},
	} {
		t.Run(name, func(t *testing.T) {
			p := echo(t)
			before := dial(t, p)
			before.say("hello")
			before.hear("hello")
			p.Set(faults)
			during := dial(t, p)
			for _, c := range []client{before, during} {
				c.say("lost")
				c.hearNothing()
			}
			// On a busy machine what was said may be on its way for longer than quiet.
			wait.For(t, patience, "both connections to lose it", func(context.Context) error {
				n := lossy(p)
				return wait.If(n == 2, n)
			})
			p.Set(Faults{})
			for _, c := range []client{before, during} {
				_ = c.end()
			}
			after := dial(t, p)
			after.say("back")
			after.hear("back")
		})
	}
}

func TestStallKeepsEverything(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	p.Set(Faults{Up: Way{Stall: true}})
	c.say("kept")
	c.hearNothing()
	p.Set(Faults{Down: Way{Stall: true}})
	c.hearNothing()
	p.Set(Faults{})
	c.hear("kept")
}

func TestDelayCostsNoThroughput(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	const delay = 100 * time.Millisecond
	p.Set(Both(Way{Delay: delay}))
	text := bytes.Repeat([]byte("x"), 20*chunkSize)
	begin := time.Now()
	c.say(string(text))
	c.hear(string(text))
	if took := time.Since(begin); took < 2*delay || took > 30*delay {
		t.Errorf("it took %s, with a delay of %s each way", took, delay)
	}
}

func TestThrottle(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	p.Set(Faults{Up: Way{BytesPerSecond: 10_000}})
	text := string(bytes.Repeat([]byte("x"), 2_000))
	begin := time.Now()
	c.say(text)
	c.hear(text)
	if took := time.Since(begin); took < 150*time.Millisecond {
		t.Errorf("2 kB at 10 kB/s took %s", took)
	}
}

func TestATargetThatIsNotThere(t *testing.T) {
	listener := testserver.Listen(t)
	must.Succeed(t, listener.Close())
	p, err := Listen(listener.Addr().String())
	must.Succeed(t, err)
	mustBeReset(t, p)
	must.Succeed(t, p.Close())
}
