// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/attach"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/reach"
)

const sandboxID = "01hzzzzzzzzzzzzzzzzzzz0001-east"

func claim(key string) *federationv1.Dispatch {
	return &federationv1.Dispatch{Call: &federationv1.Dispatch_Claim{Claim: &federationv1.ClaimCall{
		Request: &sandboxv1.CreateSandboxRequest{Env: "demo"}, KeyHash: key, Attempt: 1,
	}}}
}

func granted(*federationv1.Dispatch) *federationv1.Answer {
	return &federationv1.Answer{
		Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_Sandbox{Sandbox: &sandboxv1.Sandbox{Id: sandboxID}},
	}
}

func TestEveryReplicaHasAllClusters(t *testing.T) {
	f := newFederation(t, "a", "b", "c")
	east, west := f.attach("east", "a", 1, 3), f.attach("west", "b", 1, 5)
	east.responds(granted)
	for _, r := range f.replicas {
		r.ready(f, "east", "a", 3)
		r.ready(f, "west", "b", 5)
		answer, err := r.Dispatch(t.Context(), "east", claim(""))
		if err != nil || answer.GetSandbox().GetId() != sandboxID {
			t.Errorf("at %s: %v, %v", r.name, answer, err)
		}
	}
	west.report(7)
	f.replicas["c"].ready(f, "west", "b", 7)
	var seen []string
	for _, r := range f.replicas["c"].Replicas() {
		seen = append(seen, fmt.Sprintf("%s:%d:%t:%t", r.GetName(), r.GetClusters(), r.GetReachable(), r.GetSelf()))
	}
	if got := strings.Join(seen, " "); got != "a:1:true:false b:1:true:false c:0:true:true" {
		t.Errorf("replicas %s", got)
	}
}

// TestAClusterThatMovesIsReached: its new stream counts, wherever the dead one was.
func TestAClusterThatMovesIsReached(t *testing.T) {
	f := newFederation(t, "a", "b", "c")
	f.attach("east", "a", 1, 3)
	f.replicas["c"].ready(f, "east", "a", 3)
	f.attach("east", "b", 2, 4).responds(granted)
	for _, r := range f.replicas {
		r.ready(f, "east", "b", 4)
		if _, err := r.Dispatch(t.Context(), "east", claim("")); err != nil {
			t.Errorf("at %s: %v", r.name, err)
		}
	}
}

// newRenewing has replicas of which a cluster has left a, to attach again with a new certificate.
func newRenewing(t *testing.T) (*federation, *replica) {
	t.Helper()
	f := newFederation(t, "a", "b", "c")
	east, a := f.attach("east", "a", 1, 3), f.replicas["a"]
	for _, r := range f.replicas {
		r.ready(f, "east", "a", 3)
	}
	east.renew()
	east.end()
	f.eventually(func() error {
		_, here := a.fleet.Where("east")
		return wait.If(!here, "the old stream")
	})
	return f, a
}

// TestACallFollowsAClusterThatRenewsAtAnotherReplica: it waits where the cluster was, and goes where that is.
func TestACallFollowsAClusterThatRenewsAtAnotherReplica(t *testing.T) {
	f, a := newRenewing(t)
	dispatch := func(d *federationv1.Dispatch) <-chan error {
		out := make(chan error, 1)
		go func() {
			_, err := a.Dispatch(t.Context(), "east", d)
			out <- err
		}()
		return out
	}
	call := dispatch(claim("k"))
	tunnel := dispatch(&federationv1.Dispatch{Call: &federationv1.Dispatch_Reach{Reach: &federationv1.ReachCall{Token: "of a"}}})
	registry := prometheus.NewRegistry()
	must.Succeed(t, a.opts.Workers.Register(registry))
	f.eventually(func() error {
		families, err := registry.Gather()
		for _, family := range families {
			if family.GetName() == "atoll_hub_dispatches_in_flight" {
				n := family.GetMetric()[0].GetGauge().GetValue()
				return wait.If(n == 2, n)
			}
		}
		return fmt.Errorf("no metric of calls in flight: %w", err)
	})
	f.attach("east", "b", 2, 4)
	if err := <-call; err != nil {
		t.Errorf("a call: %v", err)
	}
	if err := <-tunnel; !errors.Is(err, attach.ErrNotConnected) {
		t.Errorf("a call with the token of a tunnel: %v", err)
	}
}

// TestATunnelFollowsAClusterThatRenewsAtAnotherReplica: it is opened where the cluster is once it has attached again, also by a replica
// that it has neither left nor reached.
func TestATunnelFollowsAClusterThatRenewsAtAnotherReplica(t *testing.T) {
	for _, by := range []string{"a", "c"} {
		t.Run(by, func(t *testing.T) { testFollows(t, by) })
	}
}

func testFollows(t *testing.T, by string) {
	t.Helper()
	f, _ := newRenewing(t)
	r := f.replicas[by]
	attached, opened := make(chan struct{}), make(chan error, 2)
	tell := func(feed bool) func(context.Context, string) error {
		return func(ctx context.Context, token string) error {
			<-attached
			return r.tell("east", feed)(ctx, token)
		}
	}
	go func() {
		tunnel, err := r.OpenTunnel(t.Context(), "east", reach.Holder{Account: "team", Sandbox: sandboxID}, tell(false))
		if err == nil {
			tunnel.Close(nil)
		}
		opened <- err
	}()
	go func() {
		changes, err := r.OpenFeed(t.Context(), "east", tell(true))
		if err == nil {
			changes.Close()
		}
		opened <- err
	}()
	f.held(2)
	f.attach("east", "b", 2, 4).opens(func(c *link.TunnelCaller) {
		for {
			if _, err := c.Recv(); err != nil {
				_ = c.CloseSend()
				c.Close(nil)
				return
			}
		}
	})
	close(attached)
	for range 2 {
		if err := <-opened; err != nil {
			t.Error(err)
		}
	}
}

// TestAReplicaThatEndsTakesItsClustersAlone: what they reported stays, and they are back at another replica.
func TestAReplicaThatEndsTakesItsClustersAlone(t *testing.T) {
	f := newFederation(t, "a", "b", "c")
	f.attach("east", "a", 1, 3)
	f.attach("west", "b", 1, 5).responds(granted)
	c := f.replicas["c"]
	c.ready(f, "east", "a", 3)
	c.ready(f, "west", "b", 5)
	f.replicas["a"].stop()
	f.eventually(func() error {
		state := c.fleet.Cluster("east").GetState()
		return wait.If(state == sandboxv1.ClusterState_SUSPECT, state)
	})
	c.ready(f, "east", "", 3) // I5
	if _, err := c.Dispatch(t.Context(), "east", claim("")); !errors.Is(err, attach.ErrNotConnected) {
		t.Errorf("a call to a cluster of a replica that has ended: %v", err)
	}
	if _, err := c.Dispatch(t.Context(), "west", claim("")); err != nil {
		t.Errorf("a call to another cluster: %v", err)
	}
	f.attach("east", "b", 2, 4).responds(granted)
	c.ready(f, "east", "b", 4)
	if _, err := c.Dispatch(t.Context(), "east", claim("")); err != nil {
		t.Errorf("after it has come back: %v", err)
	}
}

// TestAWrongHintCostsOneHop: a peer passes nothing on.
func TestAWrongHintCostsOneHop(t *testing.T) {
	f := newFederation(t, "a", "b", "c")
	f.attach("east", "a", 1, 3).responds(granted)
	b, c := f.replicas["b"], f.replicas["c"]
	c.ready(f, "east", "a", 3)
	_, err := c.peer("b").dispatch(t.Context(), "east", claim("k"))
	if !errors.Is(err, attach.ErrNotConnected) {
		t.Errorf("a replica without the cluster: %v", err)
	}
	b.ready(f, "east", "a", 3)
}

// TestI2AWorkerRemembersTheLedgerOfTheReplicaThatWrote: that of the one it is attached to may be behind.
func TestI2AWorkerRemembersTheLedgerOfTheReplicaThatWrote(t *testing.T) {
	f := newFederation(t, "a", "b")
	east := f.attach("east", "a", 1, 3)
	f.replicas["b"].ready(f, "east", "a", 3)
	told := make(chan string, 1)
	east.responds(func(d *federationv1.Dispatch) *federationv1.Answer {
		told <- d.GetLedger().GetId()
		return granted(d)
	})
	for name, r := range f.replicas {
		_, err := r.Dispatch(t.Context(), "east", claim("k"))
		must.Succeed(t, err)
		if got := <-told; got != name {
			t.Errorf("a claim that %s recorded has the mark of %s", name, got)
		}
	}
}

// TestOutcomesAcrossAReplica are those of package attach.
func TestOutcomesAcrossAReplica(t *testing.T) {
	f := newFederation(t, "a", "b")
	east := f.attach("east", "a", 1, 3)
	b := f.replicas["b"]
	b.ready(f, "east", "a", 3)
	if _, err := b.Dispatch(t.Context(), "nowhere", claim("k")); !errors.Is(err, attach.ErrNotConnected) {
		t.Errorf("an unknown cluster: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Dispatch(over, "east", claim("k")); !errors.Is(err, attach.ErrNotConnected) || !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has left: %v", err)
	}
	asked := make(chan struct{}, 1)
	east.responds(func(*federationv1.Dispatch) *federationv1.Answer { asked <- struct{}{}; return nil })
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second) // the worker has to be asked by then
	defer cancel()
	if _, err := b.Dispatch(short, "east", claim("k")); !errors.Is(err, attach.ErrUnclear) { // as this replica or the other tells first
		t.Errorf("no response in time: %v", err)
	}
	<-asked
	go func() {
		<-asked
		east.end()
	}()
	if _, err := b.Dispatch(t.Context(), "east", claim("k")); !errors.Is(err, attach.ErrUnclear) {
		t.Errorf("the worker's stream broke: %v", err)
	}
	east = f.attach("east", "a", 2, 4)
	east.responds(func(*federationv1.Dispatch) *federationv1.Answer { asked <- struct{}{}; return nil })
	b.ready(f, "east", "a", 4)
	go func() {
		<-asked
		f.replicas["a"].stop()
	}()
	if _, err := b.Dispatch(t.Context(), "east", claim("k")); !errors.Is(err, attach.ErrUnclear) {
		t.Errorf("the replica ended: %v", err)
	}
	if _, err := b.Dispatch(t.Context(), "east", claim("k")); err == nil {
		t.Error("a replica that has ended responds")
	}
}

// TestI2ALostResponseIsReleased: the sandbox of a claim without a key whose response does not cross, or whose caller leaves.
func TestI2ALostResponseIsReleased(t *testing.T) {
	f := newFederation(t, "a", "b")
	east := f.attach("east", "a", 1, 3)
	east.responds(granted)
	b := f.replicas["b"]
	b.ready(f, "east", "a", 3)
	b.gate.Close()
	began := time.Now()
	late, end := context.WithTimeout(t.Context(), patience)
	defer end()
	if _, err := b.Dispatch(late, "east", claim("")); !errors.Is(err, attach.ErrUnclear) {
		t.Errorf("a silent replica: %v", err)
	}
	if took := time.Since(began); took < takenTimeout/2 || took > 5*takenTimeout {
		t.Errorf("a claim without a key waited %s for a silent replica", took)
	}
	if state := b.fleet.Cluster("east").GetState(); state != sandboxv1.ClusterState_SUSPECT {
		t.Errorf("a cluster whose replica is silent is %s", state)
	}
	b.gate.Open()
	east.wantReleased()

	asked := make(chan struct{})
	leave := make(chan struct{})
	east.responds(func(d *federationv1.Dispatch) *federationv1.Answer {
		close(asked)
		<-leave
		return granted(d)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := b.Dispatch(ctx, "east", claim("")); !errors.Is(err, attach.ErrUnclear) {
		t.Errorf("a caller that leaves: %v", err)
	}
	f.eventually(func() error {
		return wait.If(f.replicas["a"].opts.Workers.InFlight() == 0, "that the peer waits for the response")
	})
	close(leave)
	east.wantReleased()
}

// TestI2AReplicaThatWasFrozenNamesWhatItLost: the worker names a response where it is back, before or after the replica that dispatched the
// claim notices that the stream has ended.
func TestI2AReplicaThatWasFrozenNamesWhatItLost(t *testing.T) {
	for name, backFirst := range map[string]bool{"the worker is back first": true, "the stream ends first": false} {
		t.Run(name, func(t *testing.T) {
			f := newFederation(t, "a", "b")
			frozen := f.attach("east", "a", 1, 3)
			taken := make(chan uint64, 1)
			frozen.responds(func(d *federationv1.Dispatch) *federationv1.Answer {
				taken <- d.GetId()
				return nil
			})
			a := f.replicas["a"]
			a.ready(f, "east", "a", 3)
			left := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				_, err := a.Dispatch(ctx, "east", claim(""))
				left <- err
			}()
			named := &federationv1.Unacknowledged{Stream: 1, Dispatch: <-taken, SandboxId: sandboxID}
			var back *worker
			if backFirst {
				back = f.attach("east", "b", 2, 3, named)
				frozen.end()
			} else {
				frozen.end()
				if err := <-left; !errors.Is(err, attach.ErrUnclear) {
					t.Fatalf("a claim whose stream ends: %v", err)
				}
				back = f.attach("east", "b", 2, 3, named)
			}
			back.wantReleased()
		})
	}
}

func (w *worker) wantReleased() {
	w.f.Helper()
	select {
	case id := <-w.released:
		if id != sandboxID {
			w.f.Errorf("%s was released", id)
		}
	case <-time.After(patience):
		w.f.Fatal("the sandbox of a lost response is not released")
	}
}

// opens makes the worker open a tunnel when it is asked to, and hand it to use.
func (w *worker) opens(use func(*link.TunnelCaller)) {
	w.responds(func(d *federationv1.Dispatch) *federationv1.Answer {
		token := d.GetReach().GetToken() + d.GetWatch().GetToken()
		caller, err := w.tunnels.Open(context.Background(), token)
		if err != nil {
			return &federationv1.Answer{Disposition: federationv1.Disposition_DONE,
				Error: &federationv1.Error{Code: int32(codes.Unavailable), Message: err.Error()}}
		}
		go use(caller)
		return &federationv1.Answer{Disposition: federationv1.Disposition_DONE}
	})
}

// tell asks a cluster through a replica to open a tunnel.
func (r *replica) tell(cluster string, feed bool) func(context.Context, string) error {
	return func(ctx context.Context, token string) error {
		d := &federationv1.Dispatch{Call: &federationv1.Dispatch_Reach{Reach: &federationv1.ReachCall{Token: token}}}
		if feed {
			d = &federationv1.Dispatch{Call: &federationv1.Dispatch_Watch{Watch: &federationv1.WatchCall{Token: token}}}
		}
		answer, err := r.Dispatch(ctx, cluster, d)
		if err == nil && answer.GetError() != nil {
			err = status.Error(codes.Code(answer.GetError().GetCode()), answer.GetError().GetMessage())
		}
		return err
	}
}

func TestConversationsCrossAReplica(t *testing.T) {
	f := newFederation(t, "a", "b")
	east := f.attach("east", "a", 1, 3)
	b := f.replicas["b"]
	b.ready(f, "east", "a", 3)
	east.opens(func(c *link.TunnelCaller) {
		for {
			message, err := c.Recv()
			if err != nil {
				_ = c.CloseSend()
				c.Close(nil)
				return
			}
			_ = c.Send(append([]byte("echo "), message...))
		}
	})
	holder := reach.Holder{Account: "team", Sandbox: sandboxID}
	tunnel, err := b.OpenTunnel(t.Context(), "east", holder, b.tell("east", false))
	must.Succeed(t, err)
	for range 100 {
		must.Succeed(t, tunnel.Send([]byte("hello")))
		if message, err := tunnel.Recv(); err != nil || string(message) != "echo hello" {
			t.Fatalf("%q, %v", message, err)
		}
	}
	must.Succeed(t, tunnel.CloseSend())
	if _, err := tunnel.Recv(); !errors.Is(err, io.EOF) && err == nil {
		t.Error("no end")
	}
	tunnel.Close(nil)
	<-tunnel.Cut()

	east.responds(func(*federationv1.Dispatch) *federationv1.Answer {
		return &federationv1.Answer{Disposition: federationv1.Disposition_DONE,
			Error: &federationv1.Error{Code: int32(codes.NotFound), Message: "no such sandbox"}}
	})
	_, err = b.OpenTunnel(t.Context(), "east", holder, b.tell("east", false))
	if err == nil || !strings.Contains(err.Error(), "no such sandbox") {
		t.Errorf("the worker's error is %v", err)
	}
	f.eventually(func() error { // both conversations have given back their shares
		for range reach.DefaultShares.Sandbox + 1 {
			_, err := b.OpenTunnel(t.Context(), "east", holder, b.tell("east", false))
			if err == nil || !strings.Contains(err.Error(), "no such sandbox") {
				return fmt.Errorf("after many refused conversations: %w", err)
			}
		}
		return nil
	})
}

func TestFeedsCrossAReplica(t *testing.T) {
	f := newFederation(t, "a", "b")
	east := f.attach("east", "a", 1, 3)
	b := f.replicas["b"]
	b.ready(f, "east", "a", 3)
	ended := make(chan struct{})
	east.opens(func(c *link.TunnelCaller) {
		defer close(ended)
		c.Feed(func(ctx context.Context, send func(*federationv1.SandboxChanges) error) error {
			if err := send(&federationv1.SandboxChanges{Complete: true, Changed: []*sandboxv1.Sandbox{{Id: sandboxID}}}); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		})
	})
	changes, err := b.OpenFeed(t.Context(), "east", b.tell("east", true))
	must.Succeed(t, err)
	if next, err := changes.Next(); err != nil || next.GetChanged()[0].GetId() != sandboxID {
		t.Errorf("%v, %v", next, err)
	}
	changes.Close()
	<-ended
	if _, err := changes.Next(); err == nil {
		t.Error("a closed feed has changes")
	}
}

// TestI12PeersAreHubsAlone: a worker's certificate opens nothing on the peer port, and a worker is no peer.
func TestI12PeersAreHubsAlone(t *testing.T) {
	f := newFederation(t, "a")
	address := f.members.Peers()[0].Address
	for name, tc := range map[string]struct {
		creds *link.Credentials
		want  codes.Code
	}{
		"a hub":    {f.hub(), codes.FailedPrecondition}, // of the same name
		"a worker": {f.credentials(func() (link.Files, error) { return f.ca.Cluster("east") }), codes.PermissionDenied},
	} {
		conn, err := link.DialHubPeer(address, tc.creds)
		must.Succeed(t, err)
		client := federationv1.NewPeersClient(conn)
		relay, err := client.Relay(t.Context())
		must.Succeed(t, err)
		_ = relay.Send(&federationv1.RelayRequest{Body: &federationv1.RelayRequest_Hello{Hello: &federationv1.PeerHello{
			Protocol: 1, Name: "a", Run: "x",
		}}})
		if _, err := relay.Recv(); status.Code(err) != tc.want {
			t.Errorf("%s relays: %v, want %s", name, err, tc.want)
		}
		if tc.want == codes.PermissionDenied {
			d, err := client.Dispatch(t.Context(), &federationv1.PeerDispatch{ClusterId: "east", Dispatch: claim("k")})
			must.Succeed(t, err)
			if _, err := d.Recv(); status.Code(err) != tc.want {
				t.Errorf("%s dispatches: %v", name, err)
			}
		}
		_ = conn.Close()
	}
}
