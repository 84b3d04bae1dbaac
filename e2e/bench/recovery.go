// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
)

// gate holds connections back until it is opened; then all arrive at once.
type gate struct {
	mu      sync.Mutex
	open    chan struct{} // closed: connections pass
	waiting int
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.waiting = make(chan struct{}), 0
}

func (g *gate) release() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	close(g.open)
	return now
}

// full waits until n connections are held back.
func (g *gate) full(ctx context.Context, n int) error {
	return wait.Until(ctx, patience, "all workers to come back", func(context.Context) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		return wait.If(g.waiting >= n, fmt.Sprintf("%d of %d", g.waiting, n))
	})
}

func (g *gate) dial(ctx context.Context, target string) (net.Conn, error) {
	g.mu.Lock()
	open := g.open
	g.waiting++
	g.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
		g.mu.Lock()
		g.waiting--
		g.mu.Unlock()
		return nil, context.Cause(ctx)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", target)
}

// recovery kills the hub and restarts it. When all workers have dialled, the gate opens, and the bench times how long the hub
// takes until a claim succeeds and until its view has all the workers' state. Beside it the same frames go, over as many new
// connections, to a new process that only decodes them.
func (b *bench) recovery(ctx context.Context, add func(...result)) (err error) {
	w := crowd.World{Clusters: b.size.world, Envs: 1000, Shared: min(4, b.size.world)}
	atoll, bare := newGate(), newGate()
	f, err := b.federate(ctx, "recovery", w, func(_ int, o *crowd.Options) { o.Open = atoll.dial })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	server, err := b.bareProgram(f.site)
	if err != nil {
		return err
	}
	if err := server.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.kill()) }()
	others, err := f.site.gather(ctx, w, server.link, func(_ int, o *crowd.Options) { o.Open, o.Bare = bare.dial, true })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.Stop()) }()
	var keyless, keyed []time.Duration
	legs, err := b.interleave(ctx, "recovery", b.size.pairs,
		arm{name: "decoded only", run: func(ctx context.Context, _ uint64) (leg, error) {
			return restart(ctx, server, others, bare, func() error { return nil }, func(time.Time) error { return nil })
		}},
		arm{name: "hub", run: func(ctx context.Context, seed uint64) (leg, error) {
			return restart(ctx, f.hub, f.crowd, atoll, func() error { return f.reconnect(ctx) }, func(began time.Time) error {
				var group errgroup.Group
				for key, all := range map[string]*[]time.Duration{"": &keyless, fmt.Sprintf("recovery-%d", seed): &keyed} {
					group.Go(func() error {
						took, err := f.firstClaim(ctx, int(seed), key, began)
						*all = append(*all, took)
						return err
					})
				}
				return group.Wait()
			})
		}})
	if err != nil {
		return err
	}
	first := func(name string, took []time.Duration) result {
		millisOf := make([]float64, 0, len(took))
		for _, t := range took {
			millisOf = append(millisOf, millis(t))
		}
		return measured("kill -9 of the hub: connections accepted to the first correct claim"+name, "ms", millisOf).
			requests([]leg{{Result: load.Result{Latencies: took}}})
	}
	// A claim with a key waits until every cluster has told how far the store had come.
	add(first("", keyless).atMost(300), first(" with a key", keyed),
		compare(fmt.Sprintf("kill -9 of the hub: connections accepted to all of %d clusters x 1000 Envs fresh", w.Clusters), "ms", quantile(1),
			legs[1], legs[0]).atMost(2))
	// One more restart: how long the workers themselves take to reconnect to a hub that accepts them.
	done := f.crowd.Expect(time.Now())
	if err := errors.Join(f.hub.kill(), f.hub.start(ctx)); err != nil {
		return err
	}
	f.crowd.Begin(time.Now())
	back, err := arrivals(ctx, f.crowd, done)
	add(latency("the same with back-off: the hub is up to the last cluster fresh", 1, []leg{back}))
	return err
}

// restart kills a program, restarts it, lets all workers reconnect at once, and returns when each was fresh.
func restart(
	ctx context.Context, p *program, c *crowd.Crowd, g *gate, ready func() error, beside func(began time.Time) error,
) (leg, error) {
	g.close()
	done := c.Expect(time.Now())
	if err := errors.Join(p.kill(), p.start(ctx), g.full(ctx, c.World.Clusters), ready()); err != nil {
		return leg{}, err
	}
	began := g.release()
	c.Begin(began)
	if err := beside(began); err != nil {
		return leg{}, err
	}
	return arrivals(ctx, c, done)
}

func arrivals(ctx context.Context, c *crowd.Crowd, done <-chan struct{}) (leg, error) {
	select {
	case <-done:
		return leg{Result: load.Result{Latencies: c.Arrivals()}}, nil
	case <-time.After(time.Minute):
		return leg{}, fmt.Errorf("%d of %d workers were fresh a minute after the restart", len(c.Arrivals()), c.World.Clusters)
	case <-ctx.Done():
		return leg{}, context.Cause(ctx)
	}
}

// reconnect dials for the caller too; because its back-off is not the hub's.
func (f *federation) reconnect(ctx context.Context) error {
	f.conn.ResetConnectBackoff()
	_, err := f.clusters.ListClusters(ctx, &sandboxv1.ListClustersRequest{}, grpc.WaitForReady(true))
	return err
}

// firstClaim retries a claim, as a caller does, and checks the response.
func (f *federation) firstClaim(ctx context.Context, round int, key string, began time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, load.Timeout)
	defer cancel()
	request := &sandboxv1.CreateSandboxRequest{Env: f.crowd.World.Env(round, 0), ClaimKey: key}
	for {
		sandbox, err := f.create(ctx, request)
		switch {
		case err == nil:
			took := time.Since(began)
			if key == "" {
				return took, nil
			}
			again, err := f.create(ctx, request) // a reused key returns the same sandbox
			if err == nil && again.GetId() != sandbox.GetId() {
				err = fmt.Errorf("%w: a key gave %s and %s", errWrong, sandbox.GetId(), again.GetId())
			}
			return took, err
		case errors.Is(err, errWrong):
			return 0, err
		case ctx.Err() != nil:
			return 0, fmt.Errorf("waiting for the first claim: %w", err)
		}
		load.Sleep(ctx, 20*time.Millisecond)
	}
}

// bareCommand makes this program serve the bare side of recovery.
const bareCommand = "decode-only"

// bareProgram is a process with the link's transport that decodes and confirms reports.
func (b *bench) bareProgram(s *site) (*program, error) {
	addresses, err := ports.Free(1)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return &program{
		path: self, link: addresses[0], log: filepath.Join(b.logDir(), "decode-only.log"),
		args: []string{bareCommand, addresses[0], s.hub.Cert, s.hub.Key, s.hub.CA},
	}, nil
}

// decodeOnly is that process.
func decodeOnly(args []string) error {
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	return serveBare(listener, link.Files{Cert: args[1], Key: args[2], CA: args[3]}, decoder{})
}

func serveBare(listener net.Listener, files link.Files, d decoder) error {
	credentials, err := link.LoadCredentials(files, logr.Discard())
	if err != nil {
		return err
	}
	server := link.NewServer(credentials, nil, logr.Discard())
	federationv1.RegisterLinkServer(server, d)
	return server.Serve(listener)
}

// decoder confirms every report when its last frame is decoded, and does nothing else.
type decoder struct {
	federationv1.UnimplementedLinkServer
	attached func(stream hubStream) // if set, called with each stream before anything is read
}

type hubStream = grpc.BidiStreamingServer[federationv1.WorkerFrame, federationv1.HubFrame]

// Attach implements federationv1.LinkServer.
func (d decoder) Attach(stream hubStream) error {
	if d.attached != nil {
		d.attached(stream)
	}
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		if r := frame.GetReport(); r.GetLast() {
			ack := &federationv1.HubFrame{Body: &federationv1.HubFrame_ReportAck{ReportAck: &federationv1.ReportAck{Sequence: r.GetSequence()}}}
			if err := stream.Send(ack); err != nil {
				return err
			}
		}
	}
}
