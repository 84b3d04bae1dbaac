// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// federation is a real fleet, a real store and workers that are played: a worker is a remote system here.
type federation struct {
	t        *testing.T
	store    store.Store
	registry store.Store
	recovery *recovery.State // nil: nothing was ever lost
	fleet    *fleet.Fleet
	workers  map[string]*worker
	startup  map[string]*durationpb.Duration // of each cluster's pool
	hub      *Service
}

// newFederation sets up clusters with so many idle Pods each, in the Env default/demo.
func newFederation(t *testing.T, idle map[string]int32) *federation {
	t.Helper()
	s, err := store.OpenBolt(filepath.Join(t.TempDir(), "claims.db"), "claims")
	if err != nil {
		t.Fatal(err)
	}
	registry, err := store.OpenBolt(filepath.Join(t.TempDir(), "registry.db"), "registry")
	if err != nil {
		t.Fatal(err)
	}
	view, err := fleet.New(t.Context(), fleet.Options{Clock: clock.RealClock{}, Registry: fleet.NewRegistry(registry)})
	if err != nil {
		t.Fatal(err)
	}
	f := &federation{t: t, store: s, registry: registry, fleet: view, workers: map[string]*worker{}}
	for id, n := range idle {
		f.join(id, n)
	}
	f.start()
	t.Cleanup(func() {
		f.hub.Close()
		if err := errors.Join(f.store.Close(), registry.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// start begins a hub process on the store.
func (f *federation) start() {
	f.hub = New(Options{
		Fleet: f.fleet, Dispatcher: f, Store: f.store, Recovery: f.recovery, Log: testr.New(f.t), Rand: func() uint64 { return 7 },
	})
}

// restart ends the hub process, with whatever it was waiting for, and begins another.
func (f *federation) restart() {
	f.hub.Close()
	f.start()
}

func (f *federation) join(id string, idle int32) { f.joinAs(id, idle, 1) }

func (f *federation) joinAs(id string, idle int32, stream uint64) {
	f.t.Helper()
	session, _, refused := f.fleet.Connect(id, &federationv1.Hello{Protocol: 1, ClusterUid: "uid-" + id, Term: "t1", Incarnation: stream - 1, Stream: stream})
	if refused != nil {
		f.t.Fatalf("%s is refused: %v", id, refused)
	}
	if err := session.Begin(&federationv1.Begin{Incarnation: 1}); err != nil {
		f.t.Fatal(err)
	}
	f.workers[id] = &worker{
		id: id, connected: true, live: map[string]*sandboxv1.Sandbox{}, keys: map[string]holding{}, refused: map[string]int32{},
	}
	session.Report(&federationv1.Report{Sequence: 1, Last: true, Complete: true, Segments: []*federationv1.EnvSegment{{
		Key: &federationv1.EnvKey{Namespace: "default", Name: "demo"},
		Members: []*federationv1.MemberSegment{{
			Name: "pool", State: federationv1.MemberState_ACTIVE, Idle: idle, ReadyIdle: idle, Desired: idle, QueueCapacity: 10, CanGrow: true,
			StartupTimeout: f.startup[id],
		}},
	}}})
}

// Dispatch is the link.
func (f *federation) Dispatch(ctx context.Context, cluster string, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	w := f.workers[cluster]
	if w == nil || !w.isConnected() {
		return nil, fmt.Errorf("%w: %s", ErrNotConnected, cluster)
	}
	return w.handle(ctx, proto.CloneOf(d))
}

var errBroken = errors.New("the stream broke")

// worker plays a worker: Pods with keys outlive its memory, as they do in a cluster.
type worker struct {
	id string
	// onClaim comes between the hub and a claim; carryOut is what an undisturbed worker would do.
	onClaim func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error)
	// onCall comes before every other call.
	onCall func(ctx context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error)

	mu        sync.Mutex
	connected bool
	phase     sandboxv1.Phase // of new sandboxes; RUNNING if unset
	minted    int
	live      map[string]*sandboxv1.Sandbox
	keys      map[string]holding
	refused   map[string]int32
	asked     []string // every claim: key hash or "-", and attempt
	canceled  int
	released  []string
}

type holding struct {
	id      string
	attempt int32
}

func (w *worker) isConnected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.connected
}

func (w *worker) setConnected(ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connected = ok
}

func (w *worker) claims() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

func (w *worker) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.live)
}

func (w *worker) releases() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.released)
}

// forget is a cluster whose Pods and whose worker's memory are gone.
func (w *worker) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.live)
	clear(w.keys)
	clear(w.refused)
}

func (w *worker) handle(ctx context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	if c := d.GetClaim(); c != nil {
		w.mu.Lock()
		key := c.GetRequest().GetClaimKey()
		if key == "" {
			key = "-"
		}
		w.asked = append(w.asked, fmt.Sprintf("%s/%d", key, c.GetAttempt()))
		w.mu.Unlock()
		carryOut := func() *federationv1.Answer { return w.claim(c) }
		if w.onClaim != nil {
			return w.onClaim(ctx, c, carryOut)
		}
		return carryOut(), nil
	}
	if w.onCall != nil {
		if answer, err := w.onCall(ctx, d); answer != nil || err != nil {
			return answer, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch call := d.GetCall().(type) {
	case *federationv1.Dispatch_Get:
		return w.show(call.Get.GetId()), nil
	case *federationv1.Dispatch_Release:
		return w.release(call.Release.GetId()), nil
	case *federationv1.Dispatch_Update:
		return w.change(call.Update.GetId(), func(s *sandboxv1.Sandbox) { s.IdleTimeout = call.Update.GetIdleTimeout() }), nil
	case *federationv1.Dispatch_Touch:
		return w.change(call.Touch.GetId(), func(s *sandboxv1.Sandbox) { s.LastActiveAt = timestamppb.Now() }), nil
	case *federationv1.Dispatch_Pause:
		return w.change(call.Pause.GetId(), func(s *sandboxv1.Sandbox) { s.Pause = &sandboxv1.Pause{State: sandboxv1.Pause_PAUSED} }), nil
	case *federationv1.Dispatch_Resume:
		return w.change(call.Resume.GetId(), func(s *sandboxv1.Sandbox) { s.Pause = nil }), nil
	case *federationv1.Dispatch_Lookup:
		if h, ok := w.keys[call.Lookup.GetKeyHash()]; ok && h.attempt == call.Lookup.GetAttempt() {
			return w.show(h.id), nil
		}
		return failure(federationv1.Disposition_DONE, problem.NotFound), nil
	case *federationv1.Dispatch_Cancel:
		w.canceled++
		w.refused[call.Cancel.GetKeyHash()] = call.Cancel.GetAttempt()
		if h, ok := w.keys[call.Cancel.GetKeyHash()]; ok && h.attempt <= call.Cancel.GetAttempt() {
			return w.release(h.id), nil
		}
		return &federationv1.Answer{Disposition: federationv1.Disposition_DONE}, nil
	case *federationv1.Dispatch_List:
		return w.list(call.List), nil
	}
	return nil, errBroken
}

func (w *worker) claim(c *federationv1.ClaimCall) *federationv1.Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	hash, req := c.GetKeyHash(), c.GetRequest()
	if hash != "" {
		if h, ok := w.keys[hash]; ok && h.attempt == c.GetAttempt() {
			return w.show(h.id)
		}
		if c.GetAttempt() <= w.refused[hash] {
			return failure(federationv1.Disposition_REFUSED, problem.NoCapacity)
		}
	}
	w.minted++
	sandbox := &sandboxv1.Sandbox{
		Id: fmt.Sprintf("01hzzzzzzzzzzzzzzzzzzz%04d-%s", w.minted, w.id), Namespace: req.GetNamespace(), Env: req.GetEnv(),
		Team: req.GetTeam(), User: req.GetUser(), ClaimKey: req.GetClaimKey(), Phase: sandboxv1.Phase_RUNNING, PodUid: "pod",
	}
	if w.phase != 0 {
		sandbox.Phase = w.phase
	}
	w.live[sandbox.GetId()] = sandbox
	if hash != "" {
		w.keys[hash] = holding{sandbox.GetId(), c.GetAttempt()}
	}
	return granted1(sandbox)
}

func granted1(s *sandboxv1.Sandbox) *federationv1.Answer {
	return &federationv1.Answer{
		Disposition: federationv1.Disposition_DONE, CoveredBy: 2, Result: &federationv1.Answer_Sandbox{Sandbox: proto.CloneOf(s)},
	}
}

func (w *worker) show(id string) *federationv1.Answer {
	if s := w.live[id]; s != nil {
		return granted1(s)
	}
	return failure(federationv1.Disposition_DONE, problem.NotFound)
}

func (w *worker) change(id string, change func(*sandboxv1.Sandbox)) *federationv1.Answer {
	if s := w.live[id]; s != nil {
		change(s)
	}
	return w.show(id)
}

func (w *worker) release(id string) *federationv1.Answer {
	s := w.live[id]
	if s == nil {
		return failure(federationv1.Disposition_DONE, problem.NotFound)
	}
	delete(w.live, id)
	w.released = append(w.released, id)
	s = proto.CloneOf(s)
	s.Phase, s.StopReason = sandboxv1.Phase_STOPPING, "Released"
	return granted1(s)
}

func (w *worker) list(req *sandboxv1.ListSandboxesRequest) *federationv1.Answer {
	out := &sandboxv1.ListSandboxesResponse{}
	ids := make([]string, 0, len(w.live))
	for id := range w.live {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		s := w.live[id]
		if id <= req.GetPageToken() || req.GetTeam() != "" && req.GetTeam() != s.GetTeam() {
			continue
		}
		if len(out.GetSandboxes()) == int(req.GetPageSize()) {
			out.NextPageToken = out.GetSandboxes()[len(out.GetSandboxes())-1].GetId()
			break
		}
		out.Sandboxes = append(out.Sandboxes, proto.CloneOf(s))
	}
	return &federationv1.Answer{Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_List{List: out}}
}

func failure(d federationv1.Disposition, reason problem.Reason) *federationv1.Answer {
	st := status.Convert(problem.New(reason, "the worker says %s", reason)).Proto()
	return &federationv1.Answer{
		Disposition: d, Error: &federationv1.Error{Code: st.GetCode(), Message: st.GetMessage(), Details: st.GetDetails()},
	}
}

// request is a claim for default/demo, changed as given.
func request(key string, change ...func(*sandboxv1.CreateSandboxRequest)) *sandboxv1.CreateSandboxRequest {
	r := &sandboxv1.CreateSandboxRequest{Env: "demo", ClaimKey: key, StartupTimeout: durationpb.New(30 * time.Second)}
	for _, f := range change {
		f(r)
	}
	return r
}

func prefer(clusters ...string) func(*sandboxv1.CreateSandboxRequest) {
	return func(r *sandboxv1.CreateSandboxRequest) { r.Clusters = clusters }
}

func (f *federation) create(r *sandboxv1.CreateSandboxRequest) *sandboxv1.Sandbox {
	f.t.Helper()
	s, err := f.hub.Create(f.t.Context(), r)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func wantReason(t *testing.T, err error, want problem.Reason) {
	t.Helper()
	if err == nil || reasonOf(err) != want {
		t.Fatalf("error %v, want %s", err, want)
	}
}

// stored lists the keys of the store.
func (f *federation) stored() string {
	f.t.Helper()
	entries, err := f.store.Range(f.t.Context(), "", "", 0)
	if err != nil {
		f.t.Fatal(err)
	}
	keys := make([]string, 0, len(entries))
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return strings.Join(keys, " ")
}

func (f *federation) record(key string) *record {
	f.t.Helper()
	h, err := f.hub.ledger.load(f.t.Context(), keyHash("", "default", key))
	if err != nil {
		f.t.Fatal(err)
	}
	return h.record
}

// ended is what the worker sends when a keyed sandbox has ended.
func endedOf(s *sandboxv1.Sandbox, key string, attempt int32) *federationv1.Ended {
	s = proto.CloneOf(s)
	s.Phase, s.StopReason = sandboxv1.Phase_ENDED, "Completed"
	return &federationv1.Ended{Batch: 1, Sandboxes: []*federationv1.EndedSandbox{{
		Sandbox: s, KeyHash: keyHash("", "default", key), Attempt: attempt,
	}}}
}
