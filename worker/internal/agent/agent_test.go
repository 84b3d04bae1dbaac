// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/worker/internal/claim"
)

// hash is a key hash of this test alone: the plane is shared, and a key has one Pod in all of it.
func (w *world) hash(n int) string { return fmt.Sprintf("%s-%d", w.Namespace, n) }

func (w *world) claimCall(env, keyHash string) *federationv1.Dispatch_Claim {
	call := &federationv1.ClaimCall{
		Request: &sandboxv1.CreateSandboxRequest{Namespace: w.Namespace, Env: env, Team: "red", User: "ann"},
		Pool:    env + "-main", KeyHash: keyHash,
	}
	if keyHash != "" {
		call.Attempt, call.Request.ClaimKey = 1, "key"
	}
	return &federationv1.Dispatch_Claim{Claim: call}
}

func TestTheHubLearnsWhatTheClusterHas(t *testing.T) {
	w := newWorld(t)
	w.makeEnv("py", 2)
	w.makeEnv("go", 0)
	worker := w.lead(clusterID)
	s := w.hub.session()
	w.hub.shows("py", 2)
	w.hub.shows("go", 0)
	if s.hello.GetStream() != 1 || s.hello.GetIncarnation() != 1 || s.begin.GetIncarnation() != 1 || s.hello.GetResourceVersion() == 0 {
		t.Errorf("hello %v, begin %v", s.hello, s.begin)
	}
	w.Eventually("a connection", func() error {
		return wait.If(worker.agent.Connected() && worker.foreign.connected.Load(), "not connected")
	})

	t.Log("a deletion is a removal")
	w.deleteEnv("go")
	w.hub.shows("go", -1)

	t.Log("heartbeats speak of what was reported")
	w.Eventually("a heartbeat after the last report", func() error {
		w.hub.mu.Lock()
		defer w.hub.mu.Unlock()
		last := s.reports[len(s.reports)-1]
		return wait.If(s.beat.GetSequence() == last.GetSequence() && s.beat.GetDigest() == w.hub.view.Digest(),
			fmt.Sprintf("heartbeat %v after report %d", s.beat, last.GetSequence()))
	})

	t.Log("a complete report on request")
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_HeartbeatAck{HeartbeatAck: &federationv1.HeartbeatAck{SendComplete: true}}})
	w.Eventually("a second complete report", func() error {
		w.hub.mu.Lock()
		defer w.hub.mu.Unlock()
		n := len(slices.Collect(completeOf(s.reports)))
		return wait.If(n == 2, n)
	})
	t.Log("foreign segments go to sync")
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Foreign{Foreign: &federationv1.Foreign{Complete: true, Last: true,
		Known: []string{"west"}}}})
	if f := <-worker.foreign.heard; f.GetKnown()[0] != "west" {
		t.Errorf("sync heard %v", f)
	}

	t.Log("a new stream begins with a complete report, and goes on counting")
	w.hub.mu.Lock()
	last := s.reports[len(s.reports)-1].GetSequence()
	w.hub.view = segment.Snapshot{}
	w.hub.mu.Unlock()
	close(s.hangUp)
	again := w.hub.session()
	w.hub.shows("py", 2)
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if first := again.reports[0]; !first.GetComplete() || first.GetSequence() <= last || again.hello.GetStream() != 2 ||
		again.begin.GetIncarnation() != 1 {
		t.Errorf("stream %d begins with report %d (complete: %t) after %d", again.hello.GetStream(), first.GetSequence(), first.GetComplete(),
			last)
	}
}

func completeOf(reports []*federationv1.Report) func(func(*federationv1.Report) bool) {
	return func(yield func(*federationv1.Report) bool) {
		for _, r := range reports {
			if r.GetComplete() && !yield(r) {
				return
			}
		}
	}
}

func TestADispatchedClaim(t *testing.T) {
	w, _, s := newCluster(t, 2)

	t.Log("is answered with a sandbox, after the report that covers it")
	answer := s.ask(1, &federationv1.Dispatch{Call: w.claimCall("py", w.hash(1))})
	if answer.GetSandbox().GetPool() != "py-main" || answer.GetDisposition() != federationv1.Disposition_DONE {
		t.Fatalf("the answer is %v", answer)
	}
	w.hub.mu.Lock()
	last := s.reports[len(s.reports)-1].GetSequence()
	w.hub.mu.Unlock()
	if answer.GetCoveredBy() == 0 || last < answer.GetCoveredBy() {
		t.Errorf("the answer came when the last report was %d, and says that %d covers it", last, answer.GetCoveredBy())
	}
	w.hub.shows("py", 1)

	t.Log("is touched, and gets other timeouts")
	id := answer.GetSandbox().GetId()
	touch := &federationv1.Dispatch_Touch{Touch: &sandboxv1.TouchSandboxRequest{Id: id}}
	if got := s.ask(20, &federationv1.Dispatch{Call: touch}); got.GetSandbox().GetLastActiveAt() == nil ||
		got.GetDisposition() != federationv1.Disposition_DONE {
		t.Errorf("touched: %v", got)
	}
	update := &federationv1.Dispatch_Update{Update: &sandboxv1.UpdateSandboxRequest{Id: id, IdleTimeout: durationpb.New(time.Hour)}}
	if got := s.ask(21, &federationv1.Dispatch{Call: update}); got.GetSandbox().GetIdleTimeout().AsDuration() != time.Hour {
		t.Errorf("changed: %v", got)
	}

	t.Log("is paused, as far as its Pod can be, and resumed")
	pause := &federationv1.Dispatch_Pause{Pause: &sandboxv1.PauseSandboxRequest{Id: id}}
	if got := s.ask(22, &federationv1.Dispatch{Call: pause}); got.GetError().GetCode() != int32(codes.Unimplemented) ||
		got.GetDisposition() != federationv1.Disposition_DONE {
		t.Errorf("paused: %v, want UNIMPLEMENTED: its pool has no CPU to give back", got)
	}
	resume := &federationv1.Dispatch_Resume{Resume: &sandboxv1.ResumeSandboxRequest{Id: id}}
	if got := s.ask(23, &federationv1.Dispatch{Call: resume}); got.GetSandbox().GetId() != id ||
		got.GetDisposition() != federationv1.Disposition_DONE {
		t.Errorf("resumed: %v", got)
	}

	t.Log("has its Env refreshed, as far as this worker does that")
	refresh := &federationv1.Dispatch_Refresh{Refresh: &sandboxv1.RefreshEnvRequest{Namespace: w.Namespace, Name: "py"}}
	if got := s.ask(24, &federationv1.Dispatch{Call: refresh}); got.GetError().GetCode() != int32(codes.Unimplemented) ||
		got.GetDisposition() != federationv1.Disposition_DONE {
		t.Errorf("refreshed: %v, want UNIMPLEMENTED: this worker keeps no Envs", got)
	}

	t.Log("is looked up, listed, read and released")
	for id, call := range map[uint64]*federationv1.Dispatch{
		2: {Call: &federationv1.Dispatch_Lookup{Lookup: &federationv1.LookupCall{KeyHash: w.hash(1), Attempt: 1}}},
		3: {Call: &federationv1.Dispatch_Get{Get: &sandboxv1.GetSandboxRequest{Id: answer.GetSandbox().GetId()}}},
		4: {Call: &federationv1.Dispatch_List{List: &sandboxv1.ListSandboxesRequest{Namespace: w.Namespace}}},
		5: {Call: &federationv1.Dispatch_Release{Release: &sandboxv1.ReleaseSandboxRequest{Id: answer.GetSandbox().GetId()}}},
	} {
		got := s.ask(id, call)
		found := got.GetSandbox().GetId()
		if list := got.GetList().GetSandboxes(); len(list) == 1 {
			found = list[0].GetId()
		}
		if found != answer.GetSandbox().GetId() && id != 4 { // released already, perhaps
			t.Errorf("dispatch %d: %v", id, got)
		}
	}

	t.Log("its terminal record comes until it is stored")
	ended := s.next("ended", func(f *federationv1.WorkerFrame) bool { return f.GetEnded() != nil }).GetEnded()
	if r := ended.GetSandboxes()[0]; r.GetKeyHash() != w.hash(1) || r.GetSandbox().GetId() != answer.GetSandbox().GetId() {
		t.Errorf("the record is %v", r)
	}
	s.next("ended once more", func(f *federationv1.WorkerFrame) bool { return f.GetEnded().GetBatch() == ended.GetBatch() })
	s.send(&federationv1.HubFrame{Body: &federationv1.HubFrame_EndedAck{EndedAck: &federationv1.EndedAck{Batch: ended.GetBatch()}}})

	t.Log("for another incarnation is not looked at")
	s.dispatch(&federationv1.Dispatch{Id: 6, Incarnation: 9, Call: w.claimCall("py", w.hash(2))})
	if got := s.answer(6); got.GetDisposition() != federationv1.Disposition_STALE_SESSION || got.GetError() == nil {
		t.Errorf("the answer is %v", got)
	}
	t.Log("of a kind that is not known is refused")
	if got := s.ask(7, &federationv1.Dispatch{}); got.GetDisposition() != federationv1.Disposition_REFUSED {
		t.Errorf("the answer is %v", got)
	}
}

// A claim ends by itself, for a reason that its caller understands, however short its timeout is.
func TestADispatchedClaimSaysWhatItWaitedFor(t *testing.T) {
	w, _, s := newCluster(t, 1)
	s.ask(1, &federationv1.Dispatch{Call: w.claimCall("py", w.hash(1))})
	for i, timeout := range []time.Duration{100 * time.Millisecond, time.Second} {
		for j, hash := range []string{"", w.hash(2 + i)} {
			call := w.claimCall("py", hash)
			call.Claim.Request.StartupTimeout = durationpb.New(timeout)
			id := uint64(2 + 2*i + j)
			got := s.ask(id, &federationv1.Dispatch{Timeout: durationpb.New(timeout), Call: call})
			if e := problemOf(got); got.GetDisposition() != federationv1.Disposition_REFUSED || e.Reason != problem.Deadline ||
				!strings.Contains(e.Error(), "no Pod of pool py-main became idle") {
				t.Errorf("key %q after %s: %s %v", hash, timeout, got.GetDisposition(), e)
			}
		}
	}
}

// A claim without a key whose stream breaks leaves no sandbox behind; a claim with a key continues.
func TestWhatAStreamLeavesBehind(t *testing.T) {
	w, worker, s := newCluster(t, 0)
	s.dispatch(&federationv1.Dispatch{Id: 1, Incarnation: 1, Call: w.claimCall("py", "")})
	s.dispatch(&federationv1.Dispatch{Id: 2, Incarnation: 1, Call: w.claimCall("py", w.hash(1))})
	worker.awaitWaiting(2)
	close(s.hangUp)
	worker.awaitWaiting(1)
	w.scale("py-main", 2)
	again := w.hub.session()
	w.hub.shows("py", 1)
	if got := again.ask(1, &federationv1.Dispatch{Call: w.claimCall("py", w.hash(1))}); got.GetSandbox() == nil {
		t.Errorf("asked again: %v", got)
	}
	w.hub.shows("py", 1)
}

// An answer that the hub has not acknowledged is named in the next stream, until the hub shows that it has it.
func TestAnAnswerThatMayBeLostIsNamedAgain(t *testing.T) {
	w, _, s := newCluster(t, 2)
	w.hub.mute(true)
	sandbox := s.ask(7, &federationv1.Dispatch{Call: w.claimCall("py", "")}).GetSandbox().GetId()
	s.ask(8, &federationv1.Dispatch{Call: w.claimCall("py", w.hash(1))}) // the next call with its key finds it
	close(s.hangUp)
	for range 2 {
		s = w.hub.session()
		want := []*federationv1.Unacknowledged{{Stream: 1, Dispatch: 7, SandboxId: sandbox}}
		if diff := cmp.Diff(want, s.hello.GetUnacknowledged(), protocmp.Transform()); diff != "" {
			t.Fatalf("what the worker says (-want +got):\n%s", diff)
		}
		close(s.hangUp)
	}
	w.hub.mute(false)
	w.Eventually("nothing to be named any more", func() error {
		s := w.hub.session()
		defer close(s.hangUp)
		if got := s.hello.GetUnacknowledged(); len(got) > 0 {
			s.beats(2)
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

// I8: without the hub, claims are served and Pods replaced; a hub that returns gets the current state.
func TestI8WithoutAHub(t *testing.T) {
	w, worker, _ := newCluster(t, 3)
	w.hub.kill()
	w.Eventually("the link to be down", func() error { return wait.If(!worker.agent.Connected(), "still connected") })
	for range 3 {
		got, err := worker.claims.Create(t.Context(), claim.Claim{
			Request: &sandboxv1.CreateSandboxRequest{Namespace: w.Namespace, Env: "py"}, Pool: w.Key("py-main"), Local: true,
		})
		if err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING {
			t.Fatalf("a local claim without a hub: %v, %v", got, err)
		}
	}
	w.scale("py-main", 5)
	w.Eventually("the pool to fill up without a hub", func() error {
		stats, _ := worker.claims.Stats(w.Key("py-main"))
		return wait.If(stats.ReadyIdle == 2, stats.ReadyIdle)
	})
	local, err := worker.agent.Segment(t.Context(), segment.Key{Namespace: w.Namespace, Name: "py"})
	if err != nil || local.Totals().ReadyIdle != 2 {
		t.Errorf("the local segment is %+v (%v)", local, err)
	}
	w.hub.view = segment.Snapshot{}
	w.hub.serve(w.hub.address)
	w.hub.session()
	w.hub.shows("py", 2)
}

func TestIncarnation(t *testing.T) {
	w := newWorld(t)
	persisted := func() string {
		state := &corev1.ConfigMap{}
		w.Must(w.Live.Get(t.Context(), w.Key(stateConfigMap), state))
		return state.Data[incarnationKey]
	}
	t.Log("each leader raises it")
	for n := uint64(1); n <= 2; n++ {
		leader := w.lead(clusterID)
		if s := w.hub.session(); s.begin.GetIncarnation() != n || persisted() != fmt.Sprint(n) {
			t.Errorf("leader %d began %v, and %s is persisted", n, s.begin, persisted())
		}
		w.Must(leader.stop())
	}
	t.Log("a hub that has seen a higher one is believed")
	w.hub.set(func() { w.hub.welcome.HighestIncarnation, w.hub.welcome.HighestTerm = 40, "another" })
	leader := w.lead(clusterID)
	if s := w.hub.session(); s.hello.GetIncarnation() != 3 || s.begin.GetIncarnation() != 41 || persisted() != "41" {
		t.Errorf("hello %v, begin %v, and %s is persisted", s.hello, s.begin, persisted())
	}
	w.Must(leader.stop())

	t.Log("what cannot be read is an error, never a new start")
	state := &corev1.ConfigMap{}
	w.Must(w.Live.Get(t.Context(), w.Key(stateConfigMap), state))
	for _, corrupt := range []string{"", "-1", "41x", "0", "99999999999999999999"} {
		state.Data[incarnationKey] = corrupt
		w.Must(w.Live.Update(t.Context(), state))
		if err := w.lead(clusterID).end(); !errors.Is(err, errCorruptState) || persisted() != corrupt {
			t.Errorf("%q: %v, and %q is persisted", corrupt, err, persisted())
		}
	}
}

// lapsing can lose its lease.
type lapsing struct {
	Inventory
	lapsed      atomic.Bool
	incarnation atomic.Uint64
}

func (l *lapsing) Serving() bool { return !l.lapsed.Load() && l.Inventory.Serving() }

func (l *lapsing) SetIncarnation(n uint64) {
	l.incarnation.Store(n)
	l.Inventory.SetIncarnation(n)
}

// I2: a leader that was suspended for longer than its lease does not raise itself above the one that led meanwhile. What it had
// under way would look newer than the answers of that leader.
func TestI2_ALapsedLeaderRaisesNothing(t *testing.T) {
	w := newWorld(t)
	slow := &lapsing{}
	leader := w.leadWith(clusterID, func(o *Options) { slow.Inventory, o.Inventory = o.Inventory, slow })
	before := w.hub.session().begin.GetIncarnation()
	slow.lapsed.Store(true)
	w.hub.set(func() { w.hub.welcome.HighestIncarnation, w.hub.welcome.HighestTerm = before+1, "another" })
	w.hub.kill()
	w.hub.serve(w.hub.address)
	for refused := false; !refused; {
		select {
		case said := <-leader.log:
			refused = strings.Contains(said, errNotLeading.Error())
		case s := <-w.hub.attached:
			t.Fatalf("it began %v", s.begin)
		}
	}
	if n := slow.incarnation.Load(); n != before {
		t.Errorf("claims are written under incarnation %d, want %d", n, before)
	}
	w.Must(leader.stop())
}

// I12, the worker's side: a worker does not report for a cluster whose certificate it does not have.
func TestI12AWorkerWithAnotherClustersCertificateReportsNothing(t *testing.T) {
	w := newWorld(t)
	w.makeEnv("py", 1)
	leader := w.lead("west")
	select {
	case said := <-leader.log:
		if !strings.Contains(said, errUnknownIdentity.Error()) || !strings.Contains(said, "west") {
			t.Errorf("the link says %s", said)
		}
	case s := <-w.hub.attached:
		t.Errorf("it began %v", s.begin)
	}
}
