// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/forward"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/reach"
)

const (
	echoes   = 200      // round trips of a leg
	echoRate = 200.0    // a second, on one connection
	openRate = 20.0     // connections a second
	bulk     = 64 << 20 // bytes of a leg
)

// The commands of the port inside, given by the first byte of a connection.
const (
	wantEcho = 'e'
	wantBulk = 'b'
)

// way opens connections to the port inside.
type way func(ctx context.Context) (io.ReadWriteCloser, error)

// reach measures connections to a port of a sandbox, through hub, tunnel and worker, beside ones through the same API server
// alone. Each connection of either arm has its own to the API server. The tunnel has three more hops (hub, worker, and the
// WebSocket to the hub); each copies every byte, on the same cores. The hub's limits of bandwidth are lifted; because the default of 64 MiB
// a second for a sandbox would be what is measured.
func (b *bench) reach(ctx context.Context, add func(...result)) error {
	p, atoll, err := b.newStackOf(ctx, plane.Options{}, stack.Options{HubArgs: []string{
		"--max-bandwidth=65536", "--team-max-bandwidth=65536", "--sandbox-max-bandwidth=65536",
	}})
	if err != nil {
		return err
	}
	sandbox, err := oneSandbox(ctx, p, atoll)
	if err != nil {
		return err
	}
	inside, err := newInside()
	if err != nil {
		return err
	}
	defer func() { _ = inside.Close() }()
	_, port, _ := net.SplitHostPort(inside.Addr().String())
	forwarded, err := forward.Port(p.Config(), sandbox.GetNamespace(), sandbox.GetPod(), port)
	if err != nil {
		return err
	}
	direct := func(ctx context.Context) (io.ReadWriteCloser, error) { return forwarded(ctx) }
	tunnel := tunnelWay(atoll.HubEndpoint(), sandbox, port)
	for _, figure := range []struct {
		name string
		leg  func(ctx context.Context, open way, seed uint64) (leg, error)
		show func(direct, tunnel []leg) result
	}{
		{"round trip", echoLeg, func(direct, tunnel []leg) result {
			return compare("tunnel: round trip of a byte, p50", "ms", quantile(0.5), tunnel, direct).atMost(5)
		}},
		{"opening", func(ctx context.Context, open way, seed uint64) (leg, error) {
			return leg{Result: load.Open(ctx, b.size.opens, openRate, seed, func(ctx context.Context, _ int) error { return openOnce(ctx, open) })},
				nil
		}, func(direct, tunnel []leg) result {
			return compare("tunnel: opening a connection to its first byte, p50", "ms", quantile(0.5), tunnel, direct).atMost(3)
		}},
		{"bulk", bulkLeg, func(direct, tunnel []leg) result {
			return compare("tunnel: bytes of one connection", "MB/s", func(l leg) float64 { return bulk / 1e6 / l.Took.Seconds() }, tunnel,
				direct).atLeast(0.3)
		}},
	} {
		by := func(name string, open way) arm {
			return arm{name: name, run: func(ctx context.Context, seed uint64) (leg, error) { return figure.leg(ctx, open, seed) }}
		}
		legs, err := b.interleave(ctx, figure.name, b.size.pairs, by("direct", direct), by("tunnel", tunnel))
		if err != nil {
			return err
		}
		add(figure.show(legs[0], legs[1]))
	}
	return nil
}

func oneSandbox(ctx context.Context, p *plane.Plane, atoll *stack.Stack) (*sandboxv1.Sandbox, error) {
	hub, err := atoll.HubClient()
	if err != nil {
		return nil, err
	}
	if err := stockEnv(1).Apply(ctx, p); err != nil {
		return nil, err
	}
	var sandbox *sandboxv1.Sandbox
	err = wait.Until(ctx, time.Minute, "a sandbox", func(ctx context.Context) error {
		sandbox, err = hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Namespace: namespace, Env: envName})
		return err
	})
	return sandbox, err
}

// newInside listens on the imitated kubelet's address of Pod ports.
func newInside() (net.Listener, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening as the sandbox: %w", err)
	}
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				first := make([]byte, 1)
				if _, err := io.ReadFull(conn, first); err != nil {
					return
				}
				if first[0] == wantEcho {
					_, _ = io.Copy(conn, conn)
					return
				}
				piece := make([]byte, 64<<10)
				for range bulk / len(piece) {
					if _, err := conn.Write(piece); err != nil {
						return
					}
				}
			}()
		}
	}()
	return lis, nil
}

// tunnelWay forwards a port as atollctl port-forward does.
func tunnelWay(hub stack.Endpoint, sandbox *sandboxv1.Sandbox, port string) way {
	url := "ws" + strings.TrimPrefix(hub.URL(), "http") + "/v1/sandboxes/" + sandbox.GetId() + "/ports/" + port
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		dialer := websocket.Dialer{Subprotocols: []string{reach.TCPProtocol}, ReadBufferSize: reach.MaxMessage, WriteBufferSize: reach.MaxMessage}
		conn, answer, err := dialer.DialContext(ctx, url, nil)
		if err != nil {
			return nil, err
		}
		_ = answer.Body.Close()
		return &socketStream{conn, websocket.JoinMessages(conn, "")}, nil
	}
}

type socketStream struct {
	*websocket.Conn
	io.Reader
}

func (s *socketStream) Write(p []byte) (int, error) {
	return len(p), s.WriteMessage(websocket.BinaryMessage, p)
}

// echoConn is a connection that returns each byte, in order.
type echoConn struct {
	io.ReadWriter
	mu      sync.Mutex
	waiting chan chan struct{} // of each byte in flight, closed when it is back
}

func (e *echoConn) roundTrip(ctx context.Context, _ int) error {
	back := make(chan struct{})
	e.mu.Lock()
	e.waiting <- back
	_, err := e.Write([]byte{0})
	e.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-back:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *echoConn) readAll() {
	buffer := make([]byte, echoes)
	for {
		n, err := e.Read(buffer)
		for range n {
			close(<-e.waiting)
		}
		if err != nil {
			return
		}
	}
}

// echoLeg sends bytes on one connection, without waiting for earlier ones.
func echoLeg(ctx context.Context, open way, seed uint64) (l leg, err error) {
	conn, err := open(ctx)
	if err != nil {
		return l, err
	}
	if _, err := conn.Write([]byte{wantEcho}); err != nil {
		return l, errors.Join(err, conn.Close())
	}
	e := &echoConn{ReadWriter: conn, waiting: make(chan chan struct{}, 2*echoes)}
	var reading sync.WaitGroup
	reading.Go(e.readAll)
	load.Open(ctx, echoes/10, echoRate, seed, e.roundTrip) // warms up
	l.Result = load.Open(ctx, echoes, echoRate, seed, e.roundTrip)
	err = conn.Close()
	reading.Wait()
	return l, err
}

func openOnce(ctx context.Context, open way) error {
	conn, err := open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{wantEcho, 0}); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

func bulkLeg(ctx context.Context, open way, _ uint64) (l leg, err error) {
	conn, err := open(ctx)
	if err != nil {
		return l, err
	}
	defer conn.Close()
	l.Result = load.Closed(ctx, 1, 1, func(context.Context, int) error {
		if _, err := conn.Write([]byte{wantBulk}); err != nil {
			return err
		}
		_, err := io.CopyN(io.Discard, conn, bulk)
		return err
	})
	return l, l.Err
}
