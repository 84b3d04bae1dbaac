// SPDX-License-Identifier: Apache-2.0

package crowd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

// chunk is the number of Envs in a frame of a complete report.
const chunk = 250

// Options configure a worker. ID, Hub, Credentials are required.
type Options struct {
	ID          string
	Hub         string // host:port, or several separated by commas
	Credentials *link.Credentials
	Envs        []*federationv1.EnvSegment
	// Open opens connections. Default: TCP.
	Open func(ctx context.Context, target string) (net.Conn, error)
	// Bare makes the worker send its complete report without a hello, to a server that only decodes.
	Bare bool

	// Fresh is called when the hub has applied the first report of a stream.
	Fresh func()
	// Foreign is called with other clusters' segments.
	Foreign func(*federationv1.Foreign)
	// Refused is called when a claim arrives for a pool that was reported as empty.
	Refused func()
}

// Worker is one cluster's simulated worker.
type Worker struct {
	opts Options
	end  context.CancelFunc
	life lives

	mu       sync.Mutex // of all below, and of sending: a stream has one sender at a time
	stream   link.Stream
	envs     map[segment.Key]*federationv1.EnvSegment
	order    []segment.Key
	snapshot segment.Snapshot
	sequence uint64
	first    uint64                        // sequence of the stream's first report
	acked    uint64                        // of the last report that the hub has acknowledged
	keys     map[string]*sandboxv1.Sandbox // by hash
	catalog  map[string]*federationv1.CatalogObject
}

// lives are the leaders that a worker has had. A term's goroutine counts its streams.
type lives struct {
	ended       chan error
	incarnation uint64
	streams     uint64
}

// New returns a worker, which Start starts.
func New(o Options) (*Worker, error) {
	w := &Worker{
		opts: o, end: func() {}, envs: map[segment.Key]*federationv1.EnvSegment{}, keys: map[string]*sandboxv1.Sandbox{},
		catalog: map[string]*federationv1.CatalogObject{},
	}
	for _, p := range o.Envs {
		if err := w.put(p); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Start starts the worker's next leader: a new term, with a higher incarnation.
func (w *Worker) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	o := &w.opts
	dial := link.Dial{Target: o.Hub, Credentials: o.Credentials, Clock: clock.RealClock{}, Log: logr.Discard(), Open: o.Open}
	w.end, w.life = cancel, lives{ended: make(chan error, 1), incarnation: w.life.incarnation + 1}
	ended := w.life.ended
	go func() { ended <- link.Run(ctx, dial, w.serve) }()
}

// Stop ends the worker, if it was started.
func (w *Worker) Stop() error {
	w.end()
	if w.life.ended == nil {
		return nil
	}
	err := <-w.life.ended
	w.life.ended = nil
	return err
}

// Succeed ends the worker's leader, and starts another one, of which the hub has no report.
func (w *Worker) Succeed() error {
	if err := w.Stop(); err != nil {
		return err
	}
	w.mu.Lock()
	w.sequence, w.first, w.acked = 0, 0, 0
	w.mu.Unlock()
	w.Start()
	return nil
}

func (w *Worker) put(p *federationv1.EnvSegment) error {
	s, err := segment.FromProto(p)
	if err != nil {
		return err
	}
	if w.envs[s.Key()] == nil {
		w.order = append(w.order, s.Key())
	}
	w.envs[s.Key()] = p
	w.snapshot.Put(s)
	return nil
}

// serve serves one connection.
func (w *Worker) serve(ctx context.Context, hub federationv1.LinkClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := hub.Attach(ctx)
	if err != nil {
		return err
	}
	deltas := false
	if !w.opts.Bare {
		if deltas, err = w.introduce(stream); err != nil {
			return err
		}
	}
	if err := w.begin(stream, deltas); err != nil {
		return err
	}
	defer func() {
		w.mu.Lock()
		w.stream = nil
		w.mu.Unlock()
	}()
	var beating sync.WaitGroup
	if !w.opts.Bare {
		beating.Go(func() { w.beat(ctx) })
	}
	defer beating.Wait()
	defer cancel()
	return w.read(stream)
}

// introduce covers Hello to Begin. It returns whether the hub has what it has acknowledged.
func (w *Worker) introduce(stream link.Stream) (deltas bool, err error) {
	w.life.streams++
	hello := &federationv1.Hello{Protocol: 1, Version: "bench", ClusterUid: "uid-" + w.opts.ID, Term: fmt.Sprint("crowd-", w.life.incarnation),
		Incarnation: w.life.incarnation, Stream: w.life.streams, Waits: true}
	w.mu.Lock()
	if w.acked == w.sequence {
		hello.Acknowledged, hello.Digest = w.acked, w.snapshot.Digest()
	}
	w.mu.Unlock()
	if err := stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Hello{Hello: hello}}); err != nil {
		return false, err
	}
	frame, err := stream.Recv()
	for err == nil && frame.GetHeartbeatAck() != nil {
		frame, err = stream.Recv()
	}
	if err != nil {
		return false, err
	}
	if frame.GetWelcome() == nil {
		return false, fmt.Errorf("not welcome: %v", frame)
	}
	begin := &federationv1.WorkerFrame_Begin{Begin: &federationv1.Begin{Incarnation: w.life.incarnation}}
	return frame.GetWelcome().GetDeltas(), stream.Send(&federationv1.WorkerFrame{Body: begin})
}

// begin sends the first report: complete, or of nothing where the hub has all. After that, all senders may use the stream.
func (w *Worker) begin(stream link.Stream, deltas bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	deltas = deltas && w.acked == w.sequence // no report was tried since the hello
	w.sequence++
	w.first = w.sequence
	if deltas {
		w.stream = stream
		return w.sendLocked(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: &federationv1.Report{
			Sequence: w.sequence, Last: true, Index: true, Digest: w.snapshot.Digest(),
		}}})
	}
	for at := 0; at == 0 || at < len(w.order); at += chunk {
		r := &federationv1.Report{Sequence: w.sequence, Chunk: uint32(at / chunk), Complete: true}
		for _, k := range w.order[at:min(at+chunk, len(w.order))] {
			r.Segments = append(r.Segments, w.envs[k])
		}
		if at+chunk >= len(w.order) {
			r.Last, r.Digest = true, w.snapshot.Digest()
		}
		if err := stream.Send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: r}}); err != nil {
			return err
		}
	}
	w.stream = stream
	return nil
}

const heartbeatInterval = 3 * time.Second

func (w *Worker) beat(ctx context.Context) {
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	for number := uint64(1); ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		w.mu.Lock()
		beat := &federationv1.Heartbeat{Number: number, Sequence: w.sequence, Digest: w.snapshot.Digest()}
		err := w.sendLocked(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Heartbeat{Heartbeat: beat}})
		w.mu.Unlock()
		if err != nil {
			return // the reader gets the error as well
		}
	}
}

// ErrAway is the error of a worker without a stream.
var ErrAway = errors.New("not attached")

func (w *Worker) send(frame *federationv1.WorkerFrame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sendLocked(frame)
}

func (w *Worker) sendLocked(frame *federationv1.WorkerFrame) error {
	if w.stream == nil {
		return ErrAway
	}
	return w.stream.Send(frame)
}

// Report sends a delta.
func (w *Worker) Report(changed ...*federationv1.EnvSegment) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range changed {
		if err := w.put(p); err != nil {
			return err
		}
	}
	w.sequence++
	r := &federationv1.Report{Sequence: w.sequence, Last: true, Segments: changed, Digest: w.snapshot.Digest()}
	return w.sendLocked(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: r}})
}

var errNotTaken = errors.New("the hub asks for a complete report")

func (w *Worker) read(stream link.Stream) error {
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		switch body := frame.GetBody().(type) {
		case *federationv1.HubFrame_ReportAck:
			if body.ReportAck.GetSendComplete() {
				return errNotTaken
			}
			w.mu.Lock()
			w.acked = max(w.acked, body.ReportAck.GetSequence())
			first := body.ReportAck.GetSequence() == w.first
			w.mu.Unlock()
			if first && w.opts.Fresh != nil {
				w.opts.Fresh()
			}
		case *federationv1.HubFrame_Redirect:
			return link.ErrRedirected
		case *federationv1.HubFrame_HeartbeatAck:
			if body.HeartbeatAck.GetSendComplete() {
				return errNotTaken
			}
		case *federationv1.HubFrame_Foreign:
			if w.opts.Foreign != nil {
				w.opts.Foreign(body.Foreign)
			}
		case *federationv1.HubFrame_Dispatch:
			if err := w.answer(body.Dispatch); err != nil {
				return err
			}
		}
	}
}

var sandboxes atomic.Uint64

// answer acknowledges a call and carries it out at once.
func (w *Worker) answer(d *federationv1.Dispatch) error {
	receipt := &federationv1.WorkerFrame_Receipt{Receipt: &federationv1.Receipt{Id: d.GetId()}}
	if err := w.send(&federationv1.WorkerFrame{Body: receipt}); err != nil {
		return err
	}
	a := &federationv1.Answer{Id: d.GetId(), Disposition: federationv1.Disposition_REFUSED}
	if call := d.GetCatalog(); call != nil {
		a.Disposition, a.Result = federationv1.Disposition_DONE, &federationv1.Answer_Catalog{Catalog: w.take(call)}
	} else if d.GetRelease() != nil {
		a.Disposition = federationv1.Disposition_DONE
	} else if sandbox := w.carryOut(d); sandbox != nil {
		a.Disposition, a.Result = federationv1.Disposition_DONE, &federationv1.Answer_Sandbox{Sandbox: sandbox}
		a.CoveredBy = w.next()
	} else {
		a.Error = noPod
	}
	return w.send(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: a}})
}

// noPod is why a claim for an empty pool is refused.
var noPod = func() *federationv1.Error {
	st := status.Convert(problem.New(problem.NoCapacity, "no idle Pod")).Proto()
	return &federationv1.Error{Code: st.GetCode(), Message: st.GetMessage(), Details: st.GetDetails()}
}()

// next is the number of the next report.
func (w *Worker) next() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sequence + 1
}

// take keeps its part of the hub's catalogue, or tells what it has.
func (w *Worker) take(call *federationv1.CatalogCall) *federationv1.CatalogResult {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &federationv1.CatalogResult{}
	for _, o := range call.GetObjects() {
		w.catalog[o.GetKind()+"/"+o.GetName()] = &federationv1.CatalogObject{
			Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Revision: o.GetRevision(), Catalog: call.GetCatalog(),
		}
		out.Outcomes = append(out.Outcomes, &federationv1.CatalogOutcome{
			Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Revision: o.GetRevision(),
			State: federationv1.CatalogOutcome_APPLIED,
		})
	}
	if call.GetMode() == federationv1.CatalogCall_LIST {
		out.Held = slices.Collect(maps.Values(w.catalog))
	}
	return out
}

// Holding is what a cluster has, as ListClusters shows it.
type Holding struct{ Envs, Members, Idle, Running int32 }

// Holding returns what the cluster of the worker has.
func (w *Worker) Holding() Holding {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := Holding{Envs: int32(len(w.envs))}
	for _, env := range w.envs {
		for _, m := range env.GetMembers() {
			h.Members++
			h.Idle += m.GetIdle()
			h.Running += m.GetRunning()
		}
	}
	return h
}

// Env returns the segment of an Env.
func (w *Worker) Env(key segment.Key) *federationv1.EnvSegment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.envs[key]
}

// carryOut returns the sandbox of a claim, the same one for a known key; nil for other calls.
func (w *Worker) carryOut(d *federationv1.Dispatch) *sandboxv1.Sandbox {
	w.mu.Lock()
	defer w.mu.Unlock()
	claim, request := d.GetClaim(), d.GetClaim().GetRequest()
	key := cmp.Or(claim.GetKeyHash(), d.GetLookup().GetKeyHash())
	switch held := w.keys[key]; {
	case key != "" && held != nil:
		return held
	case claim == nil:
		return nil
	case w.empty(segment.Key{Namespace: request.GetNamespace(), Name: request.GetEnv()}, claim.GetPool()):
		if w.opts.Refused != nil {
			w.opts.Refused()
		}
		return nil
	}
	number := sandboxes.Add(1)
	sandbox := &sandboxv1.Sandbox{
		Id: fmt.Sprintf("01%024d-%s", number, w.opts.ID), ClusterId: w.opts.ID, Namespace: request.GetNamespace(), Env: request.GetEnv(),
		Pool: claim.GetPool(), Pod: fmt.Sprintf("pod-%d", number), PodUid: fmt.Sprintf("%s-%d", w.opts.ID, number),
		ClaimKey: request.GetClaimKey(), Phase: sandboxv1.Phase_RUNNING,
	}
	if key != "" {
		w.keys[key] = sandbox
	}
	return sandbox
}

// empty reports whether the hub was sent that a pool has nothing left, and will not have. Where it can grow, a claim would wait for a
// Pod, and counts as served at once. mu is held.
func (w *Worker) empty(env segment.Key, pool string) bool {
	for _, m := range w.envs[env].GetMembers() {
		if m.GetName() == pool {
			return m.GetReadyIdle() == 0 && !m.GetCanGrow()
		}
	}
	return true
}
