// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/disposition"
)

const (
	// maxClaims bounds the claims under way. A queue refuses claims before that, unless several queues are full. maxCalls bounds all other
	// calls, so that waiting claims cannot keep them out: claims wait for releases.
	maxClaims = 4 * claim.DefaultQueueCapacity
	maxCalls  = 4096
	// defaultTimeout applies to a dispatch without a timeout.
	defaultTimeout = 2 * time.Minute
	// claimGrace is how long a claim may exceed the dispatch's timeout. The claim ends by itself at the timeout, with an error that says what
	// it waited for. The hub waits longer than that.
	claimGrace     = time.Second
	releaseTimeout = 30 * time.Second
)

// answeredDispatch is a dispatch and its answer.
type answeredDispatch struct {
	dispatch *federationv1.Dispatch
	answer   *federationv1.Answer
}

// handsOutUnkeyed reports whether the answer is of a claim without a key and has a sandbox. If it is lost, no caller asks for the sandbox
// again.
func (o answeredDispatch) handsOutUnkeyed() bool {
	c := o.dispatch.GetClaim()
	return c != nil && c.GetKeyHash() == "" && o.answer.GetSandbox() != nil
}

// maybeTaken reports whether the claim may have taken a Pod. A report must then cover it.
func (o answeredDispatch) maybeTaken() bool {
	return o.answer.GetSandbox() != nil || o.answer.GetDisposition() == federationv1.Disposition_UNCLEAR
}

// slots hold one token per dispatch under way.
type slots struct{ claims, calls chan struct{} }

func newSlots() slots {
	return slots{claims: make(chan struct{}, maxClaims), calls: make(chan struct{}, maxCalls)}
}

func (s slots) of(d *federationv1.Dispatch) chan struct{} {
	if d.GetClaim() != nil {
		return s.claims
	}
	return s.calls
}

func (s slots) taken() int { return len(s.claims) + len(s.calls) }

// unkeyedClaims holds the claims without a key that are under way on a stream, and cancels those whose callers have left.
type unkeyedClaims struct {
	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc
}

// add registers a claim; done removes it. It is called before the next frame is read, so that a Leave message always finds its claim.
func (l *unkeyedClaims) add(ctx context.Context, d *federationv1.Dispatch) (claim context.Context, done func()) {
	if c := d.GetClaim(); c == nil || c.GetKeyHash() != "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancels == nil {
		l.cancels = map[uint64]context.CancelFunc{}
	}
	l.cancels[d.GetId()] = cancel
	return ctx, func() {
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.cancels, d.GetId())
	}
}

func (l *unkeyedClaims) cancel(dispatches []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range dispatches {
		if cancel := l.cancels[id]; cancel != nil {
			cancel()
		}
	}
}

// dispatch sends the receipt of a dispatch and starts its call. The dispatch and its slot end with the stream. A claim with a key continues
// in package claim, where the next call with the key joins it.
func (u *uplink) dispatch(ctx context.Context, d *federationv1.Dispatch) error {
	receipt := &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Receipt{Receipt: &federationv1.Receipt{Id: d.GetId()}}}
	select {
	case u.receipts <- receipt:
	case <-ctx.Done():
		return ctx.Err()
	}
	a := u.agent
	a.remember(d.GetLedger())
	slots := a.slots.of(d)
	select {
	case slots <- struct{}{}:
	default:
		u.deliver(ctx, answeredDispatch{d, a.tooMany(d)}) // in this goroutine, because there are already enough
		return nil
	}
	waited, done := u.unkeyedClaims.add(ctx, d)
	if !a.execute(func() {
		defer func() { <-slots }()
		defer done()
		u.deliver(ctx, answeredDispatch{d, a.carryOut(waited, d)})
	}) {
		done()
		<-slots
		u.deliver(ctx, answeredDispatch{d, handingOver(d)})
	}
	return nil
}

// deliver passes an answer to the stream. If the stream has ended, deliver releases the sandbox of a claim without a key, because no caller
// asks for it again.
func (u *uplink) deliver(ctx context.Context, o answeredDispatch) {
	select {
	case u.answers <- o:
	case <-u.sentAll:
		u.agent.takeBack(o)
	case <-ctx.Done():
		u.agent.takeBack(o)
	}
}

// answer sends an answer; send calls it. If it fails, no caller has received the answer, and the sandbox of a claim without a key is
// released.
func (u *uplink) answer(ctx context.Context, o answeredDispatch) (err error) {
	if c := o.dispatch.GetClaim(); c != nil && o.maybeTaken() {
		r := c.GetRequest()
		u.agent.source.Mark(segment.Key{Namespace: r.GetNamespace(), Name: r.GetEnv()})
		o.answer.CoveredBy, err = u.cover(ctx)
	}
	if err == nil {
		err = u.transmit(&federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: o.answer}})
	}
	if err == nil {
		u.sentAnswer(o)
		return nil
	}
	if !u.agent.execute(func() { u.agent.takeBack(o) }) {
		u.agent.takeBack(o)
	}
	return err
}

func (a *Agent) takeBack(o answeredDispatch) {
	if !o.handsOutUnkeyed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.running), releaseTimeout)
	defer cancel()
	id := o.answer.GetSandbox().GetId()
	if _, err := a.opts.Sandboxes.Release(ctx, id); err != nil && disposition.Of(err) != federationv1.Disposition_DONE {
		a.opts.Log.Error(err, "could not release a sandbox that was not returned to a caller, will try again", "sandbox", id)
		a.opts.Sandboxes.Abandon(id)
	}
}

// carryOut carries out a dispatch and returns exactly one answer.
func (a *Agent) carryOut(ctx context.Context, d *federationv1.Dispatch) (answer *federationv1.Answer) {
	defer func() {
		if r := recover(); r != nil {
			a.opts.Log.Error(fmt.Errorf("panic: %v", r), "a dispatch failed", "stack", string(debug.Stack()))
			answer = failed(d, federationv1.Disposition_UNCLEAR, problem.New(problem.Internal, "the worker panicked in the call"))
		}
	}()
	ctx, span := telemetry.Continue(link.WithTraceContext(ctx, d.GetTrace()), a.opts.Traces, link.CallName(d))
	defer func() {
		a.endSpan(span, d, answer)
		a.metrics.carriedOut(d, answer)
	}()
	if stale := a.stale(d); stale != nil {
		return stale
	}
	if d.GetCall() == nil { // from a newer hub
		return failed(d, federationv1.Disposition_REFUSED, problem.New(problem.Unimplemented, "this worker does not know the call"))
	}
	timeout := defaultTimeout
	if d.GetTimeout() != nil {
		timeout = d.GetTimeout().AsDuration()
	}
	bound := timeout
	if d.GetClaim() != nil {
		bound += claimGrace
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if d.GetClaim() != nil {
		// The claim may wait for longer than this worker lives.
		defer context.AfterFunc(a.ending.begun, cancel)()
	}
	answer, err := a.call(ctx, d, timeout)
	switch {
	case err != nil && ctx.Err() != nil && a.ending.begun.Err() != nil:
		return failed(d, dispositionOf(d, err), errHandingOver())
	case err != nil:
		return failed(d, dispositionOf(d, err), problem.FromError(err))
	}
	if size := proto.Size(answer); size > link.MaxFrame {
		return failed(d, federationv1.Disposition_DONE, problem.New(problem.Invalid, "the response has %d bytes; ask for a smaller page", size))
	}
	answer.Id, answer.Disposition = d.GetId(), federationv1.Disposition_DONE
	if err := link.Check(answer); err != nil {
		return failed(d, dispositionOf(d, err), problem.New(problem.Internal, "the response cannot be sent: %w", err))
	}
	return answer
}

func (a *Agent) call(ctx context.Context, d *federationv1.Dispatch, timeout time.Duration) (*federationv1.Answer, error) {
	claims, sandboxes := a.opts.Claims, a.opts.Sandboxes
	var sandbox *sandboxv1.Sandbox
	var err error
	switch call := d.GetCall().(type) {
	case *federationv1.Dispatch_Claim:
		c := a.claim(call.Claim)
		c.Patience = timeout
		sandbox, err = claims.Create(ctx, c)
	case *federationv1.Dispatch_Get:
		sandbox, err = sandboxes.Get(ctx, call.Get.GetId())
	case *federationv1.Dispatch_List:
		list, err := sandboxes.List(ctx, call.List)
		return &federationv1.Answer{Result: &federationv1.Answer_List{List: list}}, err
	case *federationv1.Dispatch_Release:
		sandbox, err = sandboxes.Release(ctx, call.Release.GetId())
	case *federationv1.Dispatch_Update:
		sandbox, err = sandboxes.Update(ctx, call.Update)
	case *federationv1.Dispatch_Touch:
		sandbox, err = sandboxes.Touch(ctx, call.Touch.GetId())
	case *federationv1.Dispatch_Pause:
		sandbox, err = sandboxes.Pause(ctx, call.Pause.GetId())
	case *federationv1.Dispatch_Resume:
		sandbox, err = sandboxes.Resume(ctx, call.Resume.GetId())
	case *federationv1.Dispatch_Reach:
		return &federationv1.Answer{}, a.reach(ctx, call.Reach)
	case *federationv1.Dispatch_Watch:
		return &federationv1.Answer{}, a.watch(ctx, call.Watch)
	case *federationv1.Dispatch_Kubernetes:
		return &federationv1.Answer{}, a.kubernetes(ctx, call.Kubernetes)
	case *federationv1.Dispatch_Refresh:
		if a.opts.Envs == nil {
			return nil, problem.New(problem.Unimplemented, "this worker refreshes no Envs")
		}
		refreshed, err := a.opts.Envs.Refresh(ctx, call.Refresh)
		return &federationv1.Answer{Result: &federationv1.Answer_Refreshed{Refreshed: refreshed}}, err
	case *federationv1.Dispatch_Catalog:
		if a.opts.Catalog == nil {
			return nil, problem.New(problem.Unimplemented, "this worker applies no catalogue")
		}
		result, err := a.opts.Catalog.Catalog(ctx, call.Catalog)
		return &federationv1.Answer{Result: &federationv1.Answer_Catalog{Catalog: result}}, err
	case *federationv1.Dispatch_Allot:
		result, err := a.opts.Rooms.Allot(ctx, call.Allot)
		return &federationv1.Answer{Result: &federationv1.Answer_Allotted{Allotted: result}}, err
	case *federationv1.Dispatch_Lookup:
		sandbox, err = claims.Lookup(ctx, call.Lookup.GetKeyHash(), call.Lookup.GetAttempt())
	case *federationv1.Dispatch_Cancel:
		sandbox, err = claims.Cancel(ctx, call.Cancel.GetKeyHash(), call.Cancel.GetAttempt())
	case *federationv1.Dispatch_Withdraw:
		return &federationv1.Answer{}, claims.Withdraw(call.Withdraw.GetKeyHash(), call.Withdraw.GetAttempt())
	}
	return &federationv1.Answer{Result: &federationv1.Answer_Sandbox{Sandbox: sandbox}}, err
}

func (a *Agent) claim(c *federationv1.ClaimCall) claim.Claim {
	return claim.Claim{
		Request:     c.GetRequest(),
		Pool:        types.NamespacedName{Namespace: c.GetRequest().GetNamespace(), Name: c.GetPool()},
		KeyHash:     c.GetKeyHash(),
		Attempt:     c.GetAttempt(),
		Proof:       c.GetProof(),
		IdleOnly:    c.GetIdleOnly(),
		Prepares:    c.GetPrepares(),
		Incarnation: a.Incarnation(),
	}
}

// stale returns the answer to a call for another incarnation, or nil if the call is for this one.
func (a *Agent) stale(d *federationv1.Dispatch) *federationv1.Answer {
	own := a.Incarnation()
	if d.GetIncarnation() == own {
		return nil
	}
	return failed(d, federationv1.Disposition_STALE_SESSION,
		problem.New(problem.Unavailable, "the worker is incarnation %d, the call is for %d", own, d.GetIncarnation()))
}

// tooMany returns the answer to a call beyond the bound. A claim with a key may already wait here since before a stream broke. A refusal
// would send it to another cluster while it continues here (I2).
func (a *Agent) tooMany(d *federationv1.Dispatch) *federationv1.Answer {
	c := d.GetClaim()
	if c == nil {
		return failed(d, federationv1.Disposition_DONE, problem.New(problem.QueueFull, "the worker is busy with %d calls", maxCalls))
	}
	busy := problem.New(problem.QueueFull, "the worker is busy with %d claims", maxClaims)
	if c.GetKeyHash() == "" {
		return failed(d, federationv1.Disposition_REFUSED, busy)
	}
	if stale := a.stale(d); stale != nil {
		return stale
	}
	err := a.opts.Claims.Decline(a.claim(c), busy)
	return failed(d, dispositionOf(d, err), problem.FromError(err))
}

func failed(d *federationv1.Dispatch, disposition federationv1.Disposition, err *problem.Error) *federationv1.Answer {
	st := err.GRPCStatus().Proto()
	return &federationv1.Answer{
		Id:          d.GetId(),
		Disposition: disposition,
		Error: &federationv1.Error{ // invalid UTF-8 in a message must not block the answer
			Code: st.GetCode(), Message: strings.ToValidUTF8(st.GetMessage(), "\uFFFD"), Details: st.GetDetails()},
	}
}
