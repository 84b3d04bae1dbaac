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
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/procfs"
	"google.golang.org/grpc"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/pkg/link"
)

// hundred is the federation of the figures for recovery and memory.
var hundred = crowd.World{Clusters: 100, Envs: 1000, Shared: 4}

// gate holds connections back until it is opened. Open it, and all come at once.
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
	return poll(ctx, "all workers to come back", func(context.Context) (bool, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.waiting >= n, nil
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

// recovery kills the hub and starts it again. Once all workers have come to its door it opens, and from then on it is timed
// how long the hub takes until a claim is answered and until all that the workers have is in its view. Beside it the same
// frames go, over as many new connections, to a process that was just started and does nothing but decode them.
func (b *linkBench) recovery(ctx context.Context) (results []result, err error) {
	atoll, bare := newGate(), newGate()
	f, err := b.federate(ctx, "recovery", hundred, func(_ int, o *crowd.Options) { o.Open = atoll.dial })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	server, err := b.bareProgram()
	if err != nil {
		return nil, err
	}
	if err := server.start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.kill()) }()
	others, err := crowd.Gather(ctx, hundred, func(cluster int) (crowd.Options, error) {
		credentials, err := b.credentials(hundred.ID(cluster))
		return crowd.Options{Hub: server.link, Credentials: credentials, Open: bare.dial, Bare: true}, err
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, others.Stop()) }()
	pairs := make([]pair, pairCount)
	var claims []time.Duration
	var claimMillis []float64
	for i := range pairs {
		atollArm := func() (err error) {
			var claim time.Duration
			pairs[i].hub.latencies, err = restart(ctx, f.hub, f.crowd, atoll, f.reconnect, func(began time.Time) error {
				claim, err = f.firstClaim(ctx, i, began)
				return err
			})
			claims, claimMillis = append(claims, claim), append(claimMillis, millis(claim))
			return err
		}
		bareArm := func() (err error) {
			pairs[i].raw.latencies, err = restart(ctx, server, others, bare, none, func(time.Time) error { return nil })
			return err
		}
		if i%2 == 1 {
			err = errors.Join(atollArm(), bareArm())
		} else {
			err = errors.Join(bareArm(), atollArm())
		}
		if err != nil {
			return nil, err
		}
	}
	raw, hub := pool(pairs)
	ratio, bounds := ratioOf(pairs, 1)
	var last, lastBare []float64
	for _, p := range pairs {
		last, lastBare = append(last, millis(quantile(p.hub.latencies, 1))), append(lastBare, millis(quantile(p.raw.latencies, 1)))
	}
	first := result{Name: "kill -9 of the hub: connections accepted to the first correct claim", Unit: "ms"}.withLatencies(claims, 0)
	fresh := result{Name: "kill -9 of the hub: connections accepted to all of 100 clusters x 1000 Envs fresh", Value: round(median(last)), Unit: "ms"}
	results = []result{
		first.atMost(claimMillis, 300),
		fresh.withLatencies(hub.latencies, 0).against(median(lastBare), ratio, bounds, 3, true),
		result{Name: "the same frames, decoded only", Value: round(median(lastBare)), Unit: "ms"}.withLatencies(raw.latencies, 0),
	}
	more, err := f.backOff(ctx)
	return append(results, more...), err
}

// restart kills a program, starts it again, has all workers come back at once, and answers when each was fresh.
func restart(ctx context.Context, p *program, c *crowd.Crowd, g *gate, ready func(context.Context) error, beside func(began time.Time) error) ([]time.Duration, error) {
	g.close()
	done := c.Expect(time.Now())
	if err := errors.Join(p.kill(), p.start(ctx), g.full(ctx, c.World.Clusters), ready(ctx)); err != nil {
		return nil, err
	}
	began := g.release()
	c.Begin(began)
	if err := beside(began); err != nil {
		return nil, err
	}
	select {
	case <-done:
		return c.Arrivals(), nil
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("%d of %d workers were fresh a minute after the restart", len(c.Arrivals()), c.World.Clusters)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func none(context.Context) error { return nil }

// reconnect has the caller at the hub's door as well: its own back-off is not the hub's.
func (f *federation) reconnect(ctx context.Context) error {
	f.callers.conn.ResetConnectBackoff()
	_, err := f.callers.ListClusters(ctx, &sandboxv1.ListClustersRequest{}, grpc.WaitForReady(true))
	return err
}

// firstClaim asks for a sandbox with a key again and again, as a caller does, and checks the answer.
func (f *federation) firstClaim(ctx context.Context, round int, began time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	request := &sandboxv1.CreateSandboxRequest{Env: f.crowd.World.Env(round, 0), ClaimKey: fmt.Sprintf("recovery-%d", round)}
	for {
		sandbox, err := f.create(ctx, request)
		switch {
		case err == nil:
			took := time.Since(began)
			again, err := f.create(ctx, request) // a key that is used twice names one sandbox
			if err == nil && again.GetId() != sandbox.GetId() {
				err = fmt.Errorf("%w: a key answered %s and %s", errWrong, sandbox.GetId(), again.GetId())
			}
			return took, err
		case errors.Is(err, errWrong):
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for the first claim: %w", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// backOff measures, for one more restart, how long the workers themselves take to come back to a hub that accepts them.
func (f *federation) backOff(ctx context.Context) ([]result, error) {
	done := f.crowd.Expect(time.Now())
	if err := f.hub.kill(); err != nil {
		return nil, err
	}
	if err := f.hub.start(ctx); err != nil {
		return nil, err
	}
	f.crowd.Begin(time.Now())
	select {
	case <-done:
	case <-time.After(time.Minute):
		return nil, errors.New("the workers did not come back within a minute")
	}
	arrivals := f.crowd.Arrivals()
	r := result{Name: "the same with back-off: the hub is up to the last cluster fresh", Value: millis(quantile(arrivals, 1)), Unit: "ms"}
	return []result{r.withLatencies(arrivals, 0)}, nil
}

// memorySettle is long enough for the hub to collect what filling it has left behind, and to give it back.
const memorySettle = 40 * time.Second

// memory loads a hub with 100,000 members over 100 streams and reads what the system says of its process.
func (b *linkBench) memory(ctx context.Context) (results []result, err error) {
	if results, err = memoryOfMembers(ctx); err != nil {
		return nil, err
	}
	f, err := b.federate(ctx, "memory", hundred, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	process, err := procfs.NewProc(f.hub.cmd.Process.Pid)
	if err != nil {
		return nil, fmt.Errorf("looking at the hub's process: %w", err)
	}
	// A hub that nobody talks to any more does not collect what filling it has left behind.
	var reports atomic.Int64
	stop := f.crowd.Report(reportInterval, reportedEnvs, &reports)
	defer stop()
	sleepUntil(time.Now().Add(memorySettle))
	var samples []float64
	for range 50 {
		sleepUntil(time.Now().Add(100 * time.Millisecond))
		status, err := process.NewStatus()
		if err != nil {
			return nil, fmt.Errorf("looking at the hub's process: %w", err)
		}
		samples = append(samples, float64(status.VmRSS)/1e6)
	}
	status, err := process.NewStatus()
	if err != nil {
		return nil, fmt.Errorf("looking at the hub's process: %w", err)
	}
	rss := result{Name: "the hub's RSS with 100,000 members and 100 streams that report every second", Unit: "MB"}.spread(samples)
	return append(results, rss.atMost(samples, 100), result{Name: "its peak, all reports at once included", Value: round(float64(status.VmHWM) / 1e6), Unit: "MB"}), nil
}

// bareCommand has this program serve the bare side of recovery.
const bareCommand = "decode-only"

// bareProgram is a process with the link's transport that decodes reports and confirms them.
func (b *linkBench) bareProgram() (*program, error) {
	addresses, err := freeAddresses(1)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return &program{
		path: self, link: addresses[0], log: filepath.Join(b.logDir, "decode-only.log"),
		args: []string{bareCommand, addresses[0], b.hub.Cert, b.hub.Key, b.hub.CA},
	}, nil
}

// decodeOnly is that process.
func decodeOnly(address string, files link.Files) error {
	credentials, err := link.LoadCredentials(files, logr.Discard())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := link.NewServer(credentials, nil, logr.Discard())
	federationv1.RegisterLinkServer(server, decoder{})
	return server.Serve(listener)
}

type decoder struct {
	federationv1.UnimplementedLinkServer
}

// Attach confirms every report when its last frame is decoded.
func (decoder) Attach(stream grpc.BidiStreamingServer[federationv1.WorkerFrame, federationv1.HubFrame]) error {
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
