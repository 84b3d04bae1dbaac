// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// tunnels is a worker's connection for tunnels, with the certificate of a cluster.
func (h *hub) tunnels(id string) *link.Tunnels {
	h.Helper()
	return h.tunnelsWith(h.credentials(id))
}

func (h *hub) tunnelsWith(creds *link.Credentials) *link.Tunnels {
	h.Helper()
	dial := link.Dial{Target: h.address, Credentials: creds, Clock: clock.RealClock{}, Log: logr.Discard()}
	t := dial.NewTunnels(nowhere{})
	h.Cleanup(func() { h.must(t.Close()) })
	return t
}

// nowhere is a stream's connection that leads to another hub, which has no token.
type nowhere struct{ federationv1.LinkClient }

var errNowhere = status.Error(codes.NotFound, "another hub")

func (nowhere) Tunnel(
	context.Context, ...grpc.CallOption,
) (grpc.BidiStreamingClient[federationv1.TunnelFrame, federationv1.TunnelFrame], error) {
	return nil, errNowhere
}

// open has a tunnel opened by a worker's connection.
func (h *hub) open(cluster string, by *link.Tunnels) (reach.Tunnel, *link.TunnelCaller) {
	h.Helper()
	var caller *link.TunnelCaller
	opened := make(chan struct{})
	holder := reach.Holder{Sandbox: "one"}
	tunnel, err := h.server.OpenTunnel(h.Context(), cluster, holder, func(ctx context.Context, token string) (err error) {
		defer close(opened)
		caller, err = by.Open(ctx, token)
		return err
	})
	h.must(err)
	<-opened
	h.Cleanup(func() { tunnel.Close(nil) })
	return tunnel, caller
}

func TestATunnelCarriesMessagesBothWays(t *testing.T) {
	h := newHub(t, handler{})
	tunnel, caller := h.open("a", h.tunnels("a"))
	h.must(tunnel.Send([]byte("in")))
	h.must(tunnel.CloseSend())
	if got, err := caller.Recv(); err != nil || string(got) != "in" {
		t.Errorf("the worker heard %q, %v", got, err)
	}
	if _, err := caller.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last word: %v", err)
	}
	h.must(caller.Send([]byte("out")))
	if got, err := tunnel.Recv(); err != nil || string(got) != "out" {
		t.Errorf("the hub heard %q, %v", got, err)
	}
	caller.Close(problem.New(problem.NotFound, "sandbox x has ended"))
	if _, err := tunnel.Recv(); problem.FromError(err).Reason != problem.NotFound {
		t.Errorf("the hub heard of the end: %v", err)
	}
	tunnel.Close(nil)
	if _, err := caller.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestTunnelsOfARevokedCertificateEnd(t *testing.T) {
	h := newHub(t, handler{})
	mine, others := h.credentials("a"), h.credentials("b")
	h.beginWith("a", mine, &federationv1.Hello{Incarnation: 1})
	h.beginWith("b", others, &federationv1.Hello{Incarnation: 1})
	cut, caller := h.open("a", h.tunnelsWith(mine))
	kept, other := h.open("b", h.tunnelsWith(others))
	_, err := h.fleet.Revoke(t.Context(), "a")
	h.must(err)
	defer time.AfterFunc(patience, func() { cut.Close(nil) }).Stop()
	if _, err := cut.Recv(); problem.FromError(err).Reason != problem.Unavailable {
		t.Errorf("the caller of a revoked cluster got %v", err)
	}
	if _, err := caller.Recv(); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("the revoked cluster got %v", err)
	}
	h.must(other.Send([]byte("still here")))
	if got, err := kept.Recv(); err != nil || string(got) != "still here" {
		t.Errorf("another cluster's tunnel carried %q, %v", got, err)
	}
	// One that was awaited when the certificate was revoked ends as well.
	late := link.NewTunnel(lasting{})
	if err := h.server.tunnels.serve(late, fleet.Peer{}, func(fleet.Peer) bool { return true }); status.Code(err) != codes.Aborted {
		t.Errorf("a late tunnel ended with %v", err)
	}
}

// I14: what a sandbox's tunnels carry is paced, with all of them together.
func TestI14TunnelsAreCarriedAtAPace(t *testing.T) {
	h := newHub(t, handler{})
	h.server.carried = reach.NewBandwidth(reach.Rates{Sandbox: 256 << 10}, clock.RealClock{})
	by := h.tunnels("a")
	const each = 5 // messages of 32 KiB in each of two tunnels; two of ten are the burst
	began := time.Now()
	var all sync.WaitGroup
	for range 2 {
		tunnel, caller := h.open("a", by)
		all.Go(func() {
			for range each {
				if err := caller.Send(make([]byte, reach.MaxMessage-1)); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range each {
				if _, err := tunnel.Recv(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("320 KiB at 256 KiB a second took %s, want a second", took)
	}
}

// I12: a token is valid for the called cluster, by its certificate, once, and while the caller waits.
func TestI12ATokenIsGoodForItsClusterAlone(t *testing.T) {
	h := newHub(t, handler{})
	own, other := h.tunnels("a"), h.tunnels("b")
	var stolen string
	tunnel, err := h.server.OpenTunnel(t.Context(), "a", reach.Holder{}, func(ctx context.Context, token string) error {
		if _, err := other.Open(ctx, token); status.Code(err) != codes.NotFound {
			t.Errorf("another cluster names the token: %v", err)
		}
		stolen = token
		_, err := own.Open(ctx, token)
		return err
	})
	h.must(err)
	defer tunnel.Close(nil)
	if _, err := own.Open(t.Context(), stolen); status.Code(err) != codes.NotFound {
		t.Errorf("a token is named again: %v", err)
	}
	want := errors.New("refused")
	if _, err := h.server.OpenTunnel(t.Context(), "a", reach.Holder{}, func(_ context.Context, token string) error {
		stolen = token
		return want
	}); !errors.Is(err, want) {
		t.Errorf("a worker's refusal comes out as %v", err)
	}
	if _, err := own.Open(t.Context(), stolen); status.Code(err) != codes.NotFound {
		t.Errorf("a token that no call waits for is named: %v", err)
	}
	if n := h.server.tunnels.seats["a"].Taken(); n != 1 {
		t.Errorf("cluster a has %d tunnels, want 1", n)
	}
}

// I10: unread data stays within the window, in both directions.
func TestI10WhatIsNotReadStaysAtItsSource(t *testing.T) {
	h := newHub(t, handler{})
	workers := h.tunnels("a")
	tunnel, caller := h.open("a", workers)
	beside, other := h.open("a", workers)
	piece := make([]byte, 32<<10)
	for name, send := range map[string]func([]byte) error{"hub": tunnel.Send, "worker": caller.Send} {
		var sent atomic.Int64
		go func() {
			for send(piece) == nil {
				sent.Add(int64(len(piece)))
			}
		}()
		var last int64
		since := time.Now()
		h.eventually(func() error {
			if now := sent.Load(); now != last {
				last, since = now, time.Now()
			}
			still := time.Since(since)
			return wait.If(still >= 200*time.Millisecond, fmt.Sprintf("%d bytes were sent, the last %s ago", last, still))
		})
		if last > 4<<20 {
			t.Errorf("%d bytes of the %s wait for no reader", last, name)
		}
	}
	// The other tunnel of the same connection continues.
	for range 100 {
		h.must(beside.Send(piece))
		if got, err := other.Recv(); err != nil || len(got) != len(piece) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		h.must(other.Send(piece))
		if got, err := beside.Recv(); err != nil || len(got) != len(piece) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}

// I14: tunnels that name no token are few.
func TestI14UnnamedTunnelsAreFew(t *testing.T) {
	h := newHub(t, handler{})
	h.server.opts.Clock = testingclock.NewFakeClock(time.Now()) // no stream is too late, however slow the machine
	client := h.linkClient(h.credentials("a"))
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	ended := make(chan error, maxUnnamed+1)
	for range maxUnnamed + 1 {
		stream, err := client.Tunnel(ctx)
		h.must(err)
		go func() {
			_, err := stream.Recv()
			ended <- err
		}()
	}
	refused := 0
	for i := range maxUnnamed + 1 { // streams arrive in any order: whichever is the last is refused
		err := <-ended
		if i == 0 {
			cancel()
		}
		if status.Code(err) == codes.ResourceExhausted {
			refused++
		} else if status.Code(err) != codes.Canceled {
			t.Errorf("a tunnel ended with %v", err)
		}
	}
	if refused != 1 {
		t.Errorf("%d of %d tunnels were refused, want 1", refused, maxUnnamed+1)
	}
}

// linkClient is a connection with a certificate, for streams of any kind.
func (h *hub) linkClient(creds *link.Credentials) federationv1.LinkClient {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	connected, done := make(chan federationv1.LinkClient, 1), make(chan struct{})
	dial := link.Dial{Target: h.address, Credentials: creds, Clock: clock.RealClock{}, Log: logr.Discard()}
	go func() {
		defer close(done)
		_ = link.Run(ctx, dial, func(ctx context.Context, client federationv1.LinkClient) error {
			connected <- client
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	h.Cleanup(func() {
		cancel()
		<-done
	})
	return <-connected
}

// lasting is a stream that does not end.
type lasting struct{ link.TunnelStream }

func (lasting) Context() context.Context { return context.Background() }

// A caller that sends at once must not send before the tunnel is accepted: gRPC sends headers once.
func TestATunnelIsAcceptedBeforeItsFirstMessage(t *testing.T) {
	awaiting := newTunnels(reach.DefaultShares)
	token, a := awaiting.expectFeed("a")
	tunnel := link.NewTunnel(lasting{})
	accept := func() error {
		if len(a.arrived) > 0 {
			t.Error("the caller has the tunnel before it is accepted")
		}
		return nil
	}
	if err := awaiting.arrive(token, "a", tunnel, accept); err != nil || <-a.arrived != tunnel {
		t.Errorf("the caller has no tunnel: %v", err)
	}

	token, a = awaiting.expectFeed("a")
	leave := func() error {
		awaiting.drop(token, a)
		return nil
	}
	tunnel = link.NewTunnel(lasting{})
	if err := awaiting.arrive(token, "a", tunnel, leave); err != nil || len(a.arrived) > 0 {
		t.Errorf("a caller that has left got a tunnel: %v", err)
	}
	if err := awaiting.arrive(token, "a", tunnel, leave); status.Code(err) != codes.NotFound {
		t.Errorf("a token that was used: %v", err)
	}
	if err := tunnel.Serve(); err != nil {
		t.Errorf("the tunnel of a caller that has left: %v", err)
	}
}
