// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
)

func claimOf(keyHash string) *federationv1.Dispatch {
	return &federationv1.Dispatch{Call: &federationv1.Dispatch_Claim{Claim: &federationv1.ClaimCall{
		Request: &sandboxv1.CreateSandboxRequest{Namespace: "default", Env: "py"}, Pool: "main", KeyHash: keyHash,
	}}}
}

// dispatchResult is the outcome of a dispatch.
type dispatchResult struct {
	answer *federationv1.Answer
	err    error
}

func (h *hub) dispatch(ctx context.Context, cluster string, d *federationv1.Dispatch) <-chan dispatchResult {
	out := make(chan dispatchResult, 1)
	go func() {
		answer, err := h.server.Dispatch(ctx, cluster, d)
		out <- dispatchResult{answer, err}
	}()
	return out
}

func (h *hub) await(c <-chan dispatchResult) dispatchResult {
	h.Helper()
	select {
	case o := <-c:
		return o
	case <-time.After(patience):
		h.Fatal("the dispatch does not return")
		return dispatchResult{}
	}
}

func (h *hub) wantUnclear(c <-chan dispatchResult) {
	h.Helper()
	if o := h.await(c); !errors.Is(o.err, ErrUnclear) {
		h.Fatalf("a dispatch returns %v, %v, want unclear", o.answer, o.err)
	}
}

// I12: whatever identity a worker sends, its reports are those of the cluster in its certificate.
func TestI12AReportIsOfTheClusterInTheCertificate(t *testing.T) {
	h := newHub(t, handler{})
	h.attach("b", "py")
	w := h.dial("a")
	// Every identity that a worker can send is cluster b's.
	frame := w.hello(&federationv1.Hello{ClusterUid: "uid-b", Term: "b", Incarnation: 7, Version: "b"})
	if got := frame.GetWelcome().GetClusterId(); got != "a" {
		t.Fatalf("the hub welcomes %q (%v)", got, frame)
	}
	w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: &federationv1.Begin{Incarnation: 7}}})
	w.read()
	w.report(&federationv1.Report{Sequence: 1, Last: true, Complete: true}, "go")
	if got := h.holders("go"); got != "map[a:true]" {
		t.Errorf("go is in %s, want a", got)
	}
	if got := h.holders("py"); got != "map[b:true]" {
		t.Errorf("py is in %s, want b: cluster a's complete report removed it", got)
	}
	shown := h.fleet.Cluster("a")
	if left := time.Until(shown.GetCertificateExpires().AsTime()); shown.GetUid() != "uid-b" || left < time.Hour || left > 366*24*time.Hour {
		t.Errorf("a is shown as %v, want what it said and its own certificate's end", shown)
	}
}

func TestDispatchIsAnswered(t *testing.T) {
	h := newHub(t, handler{})
	w := h.attach("a", "py")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := h.dispatch(ctx, "a", claimOf("k"))
	d := w.dispatched()
	if left := d.GetTimeout().AsDuration(); d.GetIncarnation() != 1 || left < 50*time.Second || left > time.Minute {
		t.Errorf("dispatched %v", d)
	}
	w.receipt(d)
	w.answer(&federationv1.Answer{Id: d.GetId(), Disposition: federationv1.Disposition_DONE,
		Result: &federationv1.Answer_Sandbox{Sandbox: &sandboxv1.Sandbox{Id: "s-a"}}})
	if o := h.await(done); o.err != nil || o.answer.GetSandbox().GetId() != "s-a" {
		t.Errorf("answered %v, %v", o.answer, o.err)
	}
}

func TestWhatADispatchComesTo(t *testing.T) {
	h := newHub(t, handler{})
	for _, c := range []struct {
		name string
		do   func(t *testing.T, id string) error
		want error
	}{
		{"no stream", func(_ *testing.T, id string) error {
			return h.await(h.dispatch(t.Context(), id, claimOf("k"))).err
		}, ErrNotConnected},
		{"the caller is gone already", func(_ *testing.T, id string) error {
			h.attach(id, "py")
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return h.await(h.dispatch(ctx, id, claimOf("k"))).err
		}, ErrNotConnected},
		{"the stream breaks after it was sent", func(_ *testing.T, id string) error {
			w := h.attach(id, "py")
			done := h.dispatch(t.Context(), id, claimOf("k"))
			w.receipt(w.dispatched())
			w.end()
			return h.await(done).err
		}, ErrUnclear},
		{"the caller leaves after it was sent", func(_ *testing.T, id string) error {
			w := h.attach(id, "py")
			ctx, cancel := context.WithCancel(t.Context())
			done := h.dispatch(ctx, id, claimOf("k"))
			w.dispatched()
			cancel()
			return h.await(done).err
		}, ErrUnclear},
		{"no receipt for a claim without a key", func(_ *testing.T, id string) error {
			w := h.attach(id, "py")
			done := h.dispatch(t.Context(), id, claimOf(""))
			w.dispatched()
			return h.await(done).err
		}, ErrUnclear},
		{"no receipt in time for a claim with a key, and an answer later", func(_ *testing.T, id string) error {
			w := h.attach(id, "py")
			done := h.dispatch(t.Context(), id, claimOf("k"))
			d := w.dispatched()
			h.eventually(func() error { // the hub has noticed
				state := h.fleet.Cluster(id).GetState()
				return wait.If(state == sandboxv1.ClusterState_SUSPECT, fmt.Sprintf("cluster %s is %v", id, state))
			})
			w.answer(&federationv1.Answer{Id: d.GetId()})
			return h.await(done).err
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := "c-" + strings.ReplaceAll(c.name, " ", "-")[:8]
			id = strings.Trim(id, "-") + fmt.Sprint(len(c.name))
			if err := c.do(t, id); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// A sandbox that arrives for a claim without a key, after its caller went to another cluster, is released.
func TestALateSandboxIsReleased(t *testing.T) {
	h := newHub(t, handler{})
	w := h.attach("a", "py")
	ctx, cancel := context.WithCancel(t.Context())
	done := h.dispatch(ctx, "a", claimOf(""))
	d := w.dispatched()
	w.receipt(d)
	cancel()
	h.wantUnclear(done)
	left := w.next("leave", func(f *federationv1.HubFrame) bool { return f.GetLeave() != nil }).GetLeave().GetDispatches()
	if !slices.Equal(left, []uint64{d.GetId()}) {
		t.Errorf("the callers of %d have left, want %d", left, d.GetId())
	}
	w.answer(&federationv1.Answer{Id: d.GetId(), Result: &federationv1.Answer_Sandbox{Sandbox: &sandboxv1.Sandbox{Id: lateA}}})
	release := w.dispatched()
	if got := release.GetRelease().GetId(); got != lateA {
		t.Errorf("the hub sends %v, want a release of %s", release, lateA)
	}
	w.receipt(release)
	w.answer(&federationv1.Answer{Id: release.GetId()})
}

// I7: a cluster that does not read delays no other cluster's dispatches, reports or foreign segments.
func TestI7AStalledStreamDelaysNoOther(t *testing.T) {
	h := newHub(t, handler{})
	stalled := h.begin("stalled")
	stalled.sendReport(&federationv1.Report{Sequence: 1, Last: true, Complete: true}, "py")
	w := h.attach("fast", "py")
	go func() {
		for frame := range w.frames {
			if d := frame.GetDispatch(); d != nil {
				_ = w.stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: &federationv1.Answer{Id: d.GetId()}}})
			}
		}
	}()
	// p99 of dispatches to the other cluster; one that is not confirmed counts as long.
	measure := func() time.Duration {
		var took []time.Duration
		for range 500 {
			start := time.Now()
			if o, err := h.server.Dispatch(t.Context(), "fast", claimOf("")); err != nil && !errors.Is(err, ErrUnclear) {
				t.Fatalf("a dispatch to the other cluster: %v, %v", o, err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		t.Logf("dispatches to the other cluster: p50 %s, p99 %s, max %s", took[250], took[495], took[499])
		return took[495]
	}
	control := measure()
	// Fill what the transport takes without its peer reading.
	var refused atomic.Int32
	var crowd sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer crowd.Wait()
	defer cancel()
	for range 64 {
		crowd.Go(func() {
			d := claimOf("k")
			d.GetClaim().GetRequest().Metadata = map[string]string{"blob": strings.Repeat("x", 512<<10)}
			if _, err := h.server.Dispatch(ctx, "stalled", d); errors.Is(err, ErrNotConnected) {
				refused.Add(1)
			}
		})
	}
	h.eventually(func() error { return wait.If(refused.Load() != 0, "the stalled stream still takes dispatches") })
	if p99 := measure(); p99 > max(receiptTimeout/2, 4*control) {
		t.Errorf("p99 of dispatches to the other cluster is %s, before the other stalled %s", p99, control)
	}
}

func TestANewerStreamReplacesTheOlder(t *testing.T) {
	h := newHub(t, handler{})
	older := h.attach("a", "py")
	waiting := h.dispatch(t.Context(), "a", claimOf("k"))
	older.dispatched()
	newer := h.dial("a")
	if frame := newer.hello(&federationv1.Hello{Incarnation: 1, Stream: 2}); frame.GetWelcome() == nil {
		t.Fatalf("the newer stream: %v", frame)
	}
	h.wantUnclear(waiting)
	newer.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Begin{Begin: &federationv1.Begin{Incarnation: 1}}})
	newer.read()
	newer.report(&federationv1.Report{Sequence: 2, Last: true, Complete: true}, "py")
	done := h.dispatch(t.Context(), "a", claimOf("k"))
	d := newer.dispatched()
	newer.answer(&federationv1.Answer{Id: d.GetId()})
	h.must(h.await(done).err)
}

// TestALateStreamTakesNoCallsOfItsSuccessor: a stream may be replaced after its Begin, before it is the cluster's stream here.
func TestALateStreamTakesNoCallsOfItsSuccessor(t *testing.T) {
	h := newHub(t, handler{})
	h.attach("a", "py")
	late := h.server.conn("a")
	newer := h.again("a", 2)
	h.eventually(func() error {
		c := h.server.conn("a")
		return wait.If(c != nil && c != late, "the newer stream is not the cluster's")
	})
	h.server.replace(late)
	if h.server.conn("a") == late {
		t.Fatal("calls go to a stream that was replaced")
	}
	done := h.dispatch(t.Context(), "a", claimOf("k"))
	newer.answer(&federationv1.Answer{Id: newer.dispatched().GetId()})
	h.must(h.await(done).err)
}

func TestEndedIsAcknowledgedWhenItIsStored(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	stored := make(chan string, 10)
	h := newHub(t, handler{onEnded: func(_ context.Context, cluster string, e *federationv1.Ended) error {
		if broken.Load() {
			stored <- "failed"
			return errors.New("disk full")
		}
		stored <- fmt.Sprintf("%s %d", cluster, e.GetBatch())
		return nil
	}})
	w := h.attach("a", "py")
	ended := &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Ended{Ended: &federationv1.Ended{Batch: 4}}}
	w.send(ended)
	if got := <-stored; got != "failed" {
		t.Fatal(got)
	}
	broken.Store(false)
	w.send(ended)
	if got := <-stored; got != "a 4" {
		t.Fatalf("stored %s", got)
	}
	acks := 0
	w.next("ack", func(f *federationv1.HubFrame) bool {
		if f.GetEndedAck() != nil {
			acks++
		}
		return f.GetEndedAck().GetBatch() == 4
	})
	if acks != 1 {
		t.Errorf("%d acknowledgements for one batch that was stored and one that was not", acks)
	}
}

// I5: a key index with a chunk missing is no index: a key that is not in it may have a sandbox.
func TestI5KeysCountOnlyWhole(t *testing.T) {
	got := make(chan []*federationv1.KeyHolder, 10)
	h := newHub(t, handler{onKeys: func(_ string, keys []*federationv1.KeyHolder) { got <- keys }})
	w := h.begin("a")
	w.read()
	chunk := func(sequence uint64, n uint32, last bool) {
		w.sendReport(&federationv1.Report{Sequence: sequence, Chunk: n, Last: last, Complete: true,
			Keys: []*federationv1.KeyHolder{{KeyHash: fmt.Sprint(sequence, "-", n)}}})
	}
	chunk(1, 0, false)
	chunk(1, 2, true) // 1 is missing
	chunk(2, 1, true) // 0 is missing
	chunk(3, 0, false)
	chunk(3, 1, true)
	keys := <-got
	var hashes []string
	for _, k := range keys {
		hashes = append(hashes, k.GetKeyHash())
	}
	if !slices.Equal(hashes, []string{"3-0", "3-1"}) {
		t.Errorf("the index is %v", hashes)
	}
}
