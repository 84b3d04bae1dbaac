// SPDX-License-Identifier: Apache-2.0

// Package workertest simulates the workers of a federation for tests of the hub's packages; because a worker is a remote system to them.
// The fleet and its registry are real.
package workertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/watch"
)

// Federation is a real fleet with simulated workers.
type Federation struct {
	Fleet    *fleet.Fleet
	Registry store.Store
	Workers  map[string]*Worker
	Startup  map[string]*durationpb.Duration // startup timeout of each cluster's pool

	t testing.TB
}

// New returns a Federation of clusters with the given numbers of idle Pods, in the Env default/demo.
func New(t testing.TB, idle map[string]int32) *Federation {
	t.Helper()
	registry := OpenStore(t, "registry")
	view, err := fleet.New(t.Context(), fleet.Options{Clock: clock.RealClock{}, Registry: fleet.NewRegistry(registry)})
	if err != nil {
		t.Fatal(err)
	}
	f := &Federation{t: t, Fleet: view, Registry: registry, Workers: map[string]*Worker{}}
	for id, n := range idle {
		f.Join(id, n)
	}
	return f
}

// OpenStore opens a store that is closed with the test.
func OpenStore(t testing.TB, kind string) store.Store {
	t.Helper()
	s, err := store.OpenBolt(filepath.Join(t.TempDir(), kind+".db"), kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Join attaches a cluster.
func (f *Federation) Join(id string, idle int32) { f.JoinAs(id, idle, 1) }

// JoinAs attaches a cluster with a stream of the given number.
func (f *Federation) JoinAs(id string, idle int32, stream uint64) {
	f.t.Helper()
	session, _, refused := f.Fleet.Connect(fleet.Peer{ClusterID: id}, &federationv1.Hello{Protocol: 1, ClusterUid: "uid-" + id, Term: "t1",
		Incarnation: stream - 1, Stream: stream})
	if refused != nil {
		f.t.Fatalf("%s is refused: %v", id, refused)
	}
	if err := session.Begin(&federationv1.Begin{Incarnation: 1}); err != nil {
		f.t.Fatal(err)
	}
	f.Workers[id] = &Worker{
		session: session, sequence: 1,
		id: id, Connected: true, Live: map[string]*sandboxv1.Sandbox{}, Keys: map[string]Holding{}, Refused: map[string]int32{},
	}
	session.Report(&federationv1.Report{Sequence: 1, Last: true, Complete: true, Segments: []*federationv1.EnvSegment{{
		Key: &federationv1.EnvKey{Namespace: "default", Name: "demo"},
		Members: []*federationv1.MemberSegment{{
			Name: "pool", State: federationv1.MemberState_ACTIVE, Idle: idle, ReadyIdle: idle, Desired: idle, QueueCapacity: 10, CanGrow: true,
			StartupTimeout: f.Startup[id],
		}},
	}}})
}

// Report sends a complete report of a cluster's segments, with the next sequence.
func (f *Federation) Report(id string, segments ...*federationv1.EnvSegment) {
	w := f.Workers[id]
	w.reporting.Lock()
	defer w.reporting.Unlock()
	w.sequence++
	w.session.Report(&federationv1.Report{Sequence: w.sequence, Last: true, Complete: true, Segments: segments})
}

// Dispatch implements calls.Dispatcher. It simulates the link.
func (f *Federation) Dispatch(ctx context.Context, cluster string, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	w := f.Workers[cluster]
	if w == nil || !w.isConnected() {
		return nil, fmt.Errorf("%w: %s", calls.ErrNotConnected, cluster)
	}
	return w.handle(ctx, proto.CloneOf(d))
}

// ErrBroken is an error that leaves the outcome of a call unclear.
var ErrBroken = errors.New("the stream broke")

// Worker simulates a worker: Pods with keys outlive its memory, as they do in a cluster.
type Worker struct {
	id        string
	session   *fleet.Session
	reporting sync.Mutex // held while a report is sent
	sequence  uint64     // of its last report
	// OnClaim intercepts a claim. carryOut serves the claim as the worker does without OnClaim.
	OnClaim func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error)
	// OnCall runs before every other call. If it returns neither a response nor an error, the worker serves the call.
	OnCall func(ctx context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error)

	// OnFeed sends the changes of a feed.
	OnFeed func(ctx context.Context, send func(*federationv1.SandboxChanges) error) error

	Mu        sync.Mutex
	Watched   []*federationv1.WatchCall
	Connected bool
	Phase     sandboxv1.Phase // of new sandboxes; RUNNING if unset
	minted    int
	Live      map[string]*sandboxv1.Sandbox
	Keys      map[string]Holding
	Refused   map[string]int32
	asked     []string // every claim: key or "-", and attempt
	Canceled  int
	released  []string
}

// Holding is the sandbox and the attempt of a key.
type Holding struct {
	ID      string
	Attempt int32
	Proof   string // the proof in the claim
}

func (w *Worker) isConnected() bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.Connected
}

// SetConnected attaches or detaches the worker.
func (w *Worker) SetConnected(ok bool) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.Connected = ok
}

// Claims lists the claims that the worker got.
func (w *Worker) Claims() []string {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return slices.Clone(w.asked)
}

// Count counts the live sandboxes.
func (w *Worker) Count() int {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return len(w.Live)
}

// Releases counts the releases.
func (w *Worker) Releases() int {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return len(w.released)
}

// Forget simulates a cluster that lost its Pods and its worker's memory.
func (w *Worker) Forget() {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	clear(w.Live)
	clear(w.Keys)
	clear(w.Refused)
}

func (w *Worker) handle(ctx context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	if c := d.GetClaim(); c != nil {
		w.Mu.Lock()
		key := c.GetRequest().GetClaimKey()
		if key == "" {
			key = "-"
		}
		w.asked = append(w.asked, fmt.Sprintf("%s/%d", key, c.GetAttempt()))
		w.Mu.Unlock()
		carryOut := func() *federationv1.Answer { return w.Claim(c) }
		if w.OnClaim != nil {
			return w.OnClaim(ctx, c, carryOut)
		}
		return carryOut(), nil
	}
	if w.OnCall != nil {
		if answer, err := w.OnCall(ctx, d); answer != nil || err != nil {
			return answer, err
		}
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
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
		if h, ok := w.Keys[call.Lookup.GetKeyHash()]; ok && h.Attempt == call.Lookup.GetAttempt() {
			return w.show(h.ID), nil
		}
		return Failure(federationv1.Disposition_DONE, problem.NotFound), nil
	case *federationv1.Dispatch_Cancel:
		w.Canceled++
		w.Refused[call.Cancel.GetKeyHash()] = call.Cancel.GetAttempt()
		if h, ok := w.Keys[call.Cancel.GetKeyHash()]; ok && h.Attempt <= call.Cancel.GetAttempt() {
			return w.release(h.ID), nil
		}
		return &federationv1.Answer{Disposition: federationv1.Disposition_DONE}, nil
	case *federationv1.Dispatch_List:
		return w.list(call.List), nil
	case *federationv1.Dispatch_Watch:
		w.Watched = append(w.Watched, call.Watch)
		return &federationv1.Answer{Disposition: federationv1.Disposition_DONE}, nil
	}
	return nil, ErrBroken
}

// OpenFeed opens a feed over which a worker sends the changes of OnFeed, or else its present sandboxes.
func (f *Federation) OpenFeed(ctx context.Context, cluster string, tell func(context.Context, string) error) (watch.Feed, error) {
	if err := tell(ctx, "token"); err != nil {
		return nil, err
	}
	w := f.Workers[cluster]
	return watch.Pipe(context.WithoutCancel(ctx), func(ctx context.Context, send func(*federationv1.SandboxChanges) error) error {
		if w.OnFeed != nil {
			return w.OnFeed(ctx, send)
		}
		all := &federationv1.SandboxChanges{Complete: true}
		w.Mu.Lock()
		for _, s := range w.Live {
			all.Changed = append(all.Changed, proto.CloneOf(s))
		}
		w.Mu.Unlock()
		if err := send(all); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}), nil
}

// Claim serves a claim.
func (w *Worker) Claim(c *federationv1.ClaimCall) *federationv1.Answer {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	hash, req := c.GetKeyHash(), c.GetRequest()
	if hash != "" {
		if h, ok := w.Keys[hash]; ok && h.Attempt == c.GetAttempt() {
			return w.show(h.ID)
		}
		if c.GetAttempt() <= w.Refused[hash] {
			return Failure(federationv1.Disposition_REFUSED, problem.NoCapacity)
		}
	}
	w.minted++
	sandbox := &sandboxv1.Sandbox{
		Id: fmt.Sprintf("01hzzzzzzzzzzzzzzzzzzz%04d-%s", w.minted, w.id), Namespace: req.GetNamespace(), Env: req.GetEnv(),
		Team: req.GetTeam(), User: req.GetUser(), ClaimKey: req.GetClaimKey(), Phase: sandboxv1.Phase_RUNNING, PodUid: "pod",
	}
	if w.Phase != 0 {
		sandbox.Phase = w.Phase
	}
	w.Live[sandbox.GetId()] = sandbox
	if hash != "" {
		w.Keys[hash] = Holding{sandbox.GetId(), c.GetAttempt(), c.GetProof()}
	}
	return Granted(sandbox)
}

// Granted returns a response with the sandbox.
func Granted(s *sandboxv1.Sandbox) *federationv1.Answer {
	return &federationv1.Answer{
		Disposition: federationv1.Disposition_DONE, CoveredBy: 2, Result: &federationv1.Answer_Sandbox{Sandbox: proto.CloneOf(s)},
	}
}

func (w *Worker) show(id string) *federationv1.Answer {
	if s := w.Live[id]; s != nil {
		return Granted(s)
	}
	return Failure(federationv1.Disposition_DONE, problem.NotFound)
}

func (w *Worker) change(id string, change func(*sandboxv1.Sandbox)) *federationv1.Answer {
	if s := w.Live[id]; s != nil {
		change(s)
	}
	return w.show(id)
}

func (w *Worker) release(id string) *federationv1.Answer {
	s := w.Live[id]
	if s == nil {
		return Failure(federationv1.Disposition_DONE, problem.NotFound)
	}
	delete(w.Live, id)
	w.released = append(w.released, id)
	s = proto.CloneOf(s)
	s.Phase, s.StopReason = sandboxv1.Phase_STOPPING, "Released"
	return Granted(s)
}

func (w *Worker) list(req *sandboxv1.ListSandboxesRequest) *federationv1.Answer {
	out := &sandboxv1.ListSandboxesResponse{}
	for _, id := range slices.Sorted(maps.Keys(w.Live)) {
		s := w.Live[id]
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

// Failure returns a response with an error.
func Failure(d federationv1.Disposition, reason problem.Reason) *federationv1.Answer {
	return &federationv1.Answer{Disposition: d, Error: calls.ErrorProto(problem.New(reason, "the worker says %s", reason))}
}

// Request returns a request for default/demo with the given changes.
func Request(key string, change ...func(*sandboxv1.CreateSandboxRequest)) *sandboxv1.CreateSandboxRequest {
	r := &sandboxv1.CreateSandboxRequest{Env: "demo", ClaimKey: key, StartupTimeout: durationpb.New(30 * time.Second)}
	for _, f := range change {
		f(r)
	}
	return r
}

// Prefer sets a request's clusters.
func Prefer(clusters ...string) func(*sandboxv1.CreateSandboxRequest) {
	return func(r *sandboxv1.CreateSandboxRequest) { r.Clusters = clusters }
}

// KeyHash returns the name of a claim key on the wire.
func KeyHash(key string) string {
	sum := sha256.Sum256([]byte("\x00default\x00" + key))
	return hex.EncodeToString(sum[:])[:32]
}

// Ended returns the message of a worker after a sandbox with a key has ended.
func Ended(s *sandboxv1.Sandbox, key string, attempt int32) *federationv1.Ended {
	s = proto.CloneOf(s)
	s.Phase, s.StopReason = sandboxv1.Phase_ENDED, "Completed"
	return &federationv1.Ended{Batch: 1, Sandboxes: []*federationv1.EndedSandbox{{
		Sandbox: s, KeyHash: KeyHash(key), Attempt: attempt,
	}}}
}

// Creator is the part of a hub that serves claims.
type Creator interface {
	Create(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error)
}

// Create returns the sandbox of a claim that must succeed.
func Create(t testing.TB, hub Creator, r *sandboxv1.CreateSandboxRequest) *sandboxv1.Sandbox {
	t.Helper()
	s, err := hub.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// WantReason fails the test unless err is a problem of that reason.
func WantReason(t testing.TB, err error, want problem.Reason) {
	t.Helper()
	if err == nil || problem.FromError(err).Reason != want {
		t.Fatalf("error %v, want %s", err, want)
	}
}
