// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
)

// flight is the one running pursuit of a claim key in this process. Callers with the same key join it.
type flight struct {
	hash    string
	account string // the account that the record counts against
	request *sandboxv1.CreateSandboxRequest
	terms   // the terms of its first caller

	as principal.Principal // its first caller

	ctx    context.Context // ends with the service, or by cancel
	cancel context.CancelCauseFunc

	proven  chan struct{} // closed once the record has this request for certain
	durable chan struct{} // closed once the claim is durable; pending is set then
	pending *sandboxv1.Sandbox
	done    chan struct{} // closed once sandbox or err is set
	repeat  bool          // the key had a record before; set before durable and done are closed
	sandbox *sandboxv1.Sandbox
	err     error
	gone    chan struct{} // closed once its outcome is durable too and the next flight may start
	closed  bool          // no more callers may join it; the lock of flights guards it
}

// flights are the running flights.
type flights struct {
	mu    sync.Mutex
	byKey map[string]*flight // by key hash
	byID  map[string]*flight // by sandbox id: flights whose outcome is being written
}

func newFlights() *flights { return &flights{byKey: map[string]*flight{}, byID: map[string]*flight{}} }

func (f *flights) of(hash string) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byKey[hash]
}

// returning returns the flight that returns a sandbox, until that flight's outcome is durable.
func (f *flights) returning(id string) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byID[id]
}

// addReturning registers the sandbox that a flight is about to return.
func (f *flights) addReturning(with *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id := with.sandbox.GetId(); id != "" {
		f.byID[id] = with
	}
}

func (f *flights) remove(over *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byKey, over.hash)
	delete(f.byID, over.sandbox.GetId())
}

func (f *flights) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byKey)
}

const (
	noWait       = sandboxv1.CreateSandboxRequest_NONE
	waitAssigned = sandboxv1.CreateSandboxRequest_ASSIGNED
)

// errCanceled is the cancellation cause of a flight whose claim was durably cancelled.
var errCanceled = errors.New("the claim was cancelled")

// createKeyed serves a claim with a key through its own flight or another caller's. repeat is true if an earlier call made the claim.
func (s *Service) createKeyed(
	ctx context.Context, req *sandboxv1.CreateSandboxRequest, how terms,
) (sandbox *sandboxv1.Sandbox, repeat bool, err error) {
	hash := ledger.KeyHash(req.GetTeam(), req.GetNamespace(), req.GetClaimKey())
	s.awaitMemories(ctx)
	if err := s.recovered(ctx); err != nil {
		return nil, false, err
	}
	for first := true; ; first = false {
		if err := s.settle(ctx, hash); err != nil {
			return nil, false, err
		}
		f, joins, err := s.join(ctx, hash, accountOf(principal.From(ctx), req.GetTeam()), req, how)
		if err != nil {
			return nil, false, err
		}
		if !joins {
			if err := f.settled(ctx); err != nil {
				return nil, false, err
			}
			continue
		}
		if !proto.Equal(f.request, req) {
			if err := s.yield(ctx, f, req); err != nil {
				return nil, false, err
			}
			continue
		}
		if how.wait == noWait {
			select {
			case <-f.durable:
				f.markRepeat(ctx, req, first)
				sandbox, err = f.accepted()
				return sandbox, false, err
			case <-ctx.Done():
				return nil, false, gone(ctx)
			}
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, false, gone(ctx)
		}
		repeat = f.markRepeat(ctx, req, first) || repeat
		if f.err != nil {
			return nil, false, f.err
		}
		if how.wait != waitAssigned && !settled(f.sandbox) {
			continue // the flight did not wait until the sandbox started; the next one does
		}
		return proto.CloneOf(f.sandbox), repeat, nil
	}
}

// markRepeat reports whether a call repeats an earlier one: its first flight belongs to another call, or the key had a record before. It
// marks a repeat in the audit.
func (f *flight) markRepeat(ctx context.Context, req *sandboxv1.CreateSandboxRequest, first bool) bool {
	repeat := first && (f.request != req || f.repeat)
	if repeat {
		audit.MarkRepeat(ctx)
	}
	return repeat
}

// yield returns the error of a call that finds a flight with other parameters. The call conflicts only if the record has the flight's
// parameters. Until that is known, as with an adopted claim whose cluster is away, either call may be the owner of the key. yield returns
// nil if the flight ended and proved nothing.
func (s *Service) yield(ctx context.Context, f *flight, req *sandboxv1.CreateSandboxRequest) error {
	patience := s.clock.NewTimer(s.startupTimeout(req, nil))
	defer patience.Stop()
	select {
	case <-f.proven:
		return problem.KeyConflict(req.GetClaimKey(), problem.Differing(f.request, req))
	case <-f.gone:
		return nil
	case <-ctx.Done():
		return gone(ctx)
	case <-patience.C():
		return problem.New(problem.OutcomeUnknown, "another call with this claimKey is under way; ask again with the same claimKey").
			WithRetryAfter(problem.RetrySoon)
	}
}

// settle waits until the outcome of the key's latest flight is durable, if that flight has ended, so that no caller gets a result from
// before its call.
func (s *Service) settle(ctx context.Context, hash string) error {
	f := s.flights.of(hash)
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return f.settled(ctx)
	default:
		return nil
	}
}

// settleID is settle for the flight that returns a sandbox.
func (s *Service) settleID(ctx context.Context, id string) error {
	f := s.flights.returning(id)
	if f == nil {
		return nil
	}
	return f.settled(ctx)
}

func (f *flight) settled(ctx context.Context) error {
	select {
	case <-f.gone:
		return nil
	case <-ctx.Done():
		return gone(ctx)
	}
}

// accepted returns the response for a caller that does not wait.
func (f *flight) accepted() (*sandboxv1.Sandbox, error) {
	if f.pending == nil { // the flight has ended, and closes done next
		<-f.done
	}
	select {
	case <-f.done:
		return proto.CloneOf(f.sandbox), f.err
	default:
		return proto.CloneOf(f.pending), nil
	}
}

// settled reports whether the sandbox has finished starting. The daemon gets the claim's environment after that.
func settled(s *sandboxv1.Sandbox) bool {
	return s.GetPhase() != sandboxv1.Phase_PENDING && (s.GetPhase() != sandboxv1.Phase_STARTING || outcome.IsPreparing(s))
}

// join returns the key's flight, and starts one if there is none. The flight belongs to the trace of its first caller. joins is false if no
// more callers may join the flight.
func (s *Service) join(
	ctx context.Context, hash, account string, req *sandboxv1.CreateSandboxRequest, how terms,
) (f *flight, joins bool, err error) {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	if f = s.flights.byKey[hash]; f != nil {
		telemetry.Joined(ctx, f.ctx)
		return f, !f.closed, nil
	}
	f = &flight{
		hash: hash, account: account, request: req, terms: how, as: principal.From(ctx),
		proven: make(chan struct{}), durable: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{}),
	}
	f.ctx, f.cancel = context.WithCancelCause(telemetry.Adopt(s.background.Context(), ctx))
	if !s.background.Go(func() { s.fly(f) }) {
		f.cancel(nil)
		return nil, false, problem.New(problem.Unavailable, "the hub is shutting down").WithRetryAfter(problem.RetrySoon)
	}
	s.flights.byKey[hash] = f
	return f, true, nil
}

// close stops callers from joining a flight if the hub has several replicas. A result that is read afterwards is then no older than the
// call of any caller that gets it.
func (s *Service) close(f *flight) {
	if s.shared == nil {
		return
	}
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	f.closed = true
}

// fly runs a flight to its end. With one replica it writes the outcome after it has published the result, while it is still the key's
// flight, so that nothing else writes the record in between. With several replicas it writes the outcome first.
func (s *Service) fly(f *flight) {
	defer f.cancel(nil)
	k := &keyed{service: s, flight: f}
	f.sandbox, f.err = k.run()
	if errors.Is(context.Cause(f.ctx), errCanceled) {
		f.sandbox, f.err = k.canceled()
	}
	s.flights.addReturning(f)
	f.writtenDown(nil)
	close(f.done)
	if s.shared == nil {
		k.learn()
	}
	s.flights.remove(f)
	close(f.gone)
}

// writtenDown closes durable, which releases callers that wait only for durability. Only the flight's own goroutine calls it.
func (f *flight) writtenDown(pending *sandboxv1.Sandbox) {
	select {
	case <-f.durable:
	default:
		f.pending = pending
		close(f.durable)
	}
}

// prove closes proven: the record has this request. Only the flight's own goroutine calls it.
func (f *flight) prove() {
	select {
	case <-f.proven:
	default:
		close(f.proven)
	}
}

// dispatched returns the terms for the worker.
func (f *flight) dispatched() terms {
	how := f.terms
	if how.wait == noWait {
		how.wait = waitAssigned
	}
	return how
}

// abort ends the flight of a key after its claim was durably cancelled.
func (s *Service) abort(hash string) {
	f := s.flights.of(hash)
	if f != nil {
		f.cancel(errCanceled)
	}
}

// flightDeadline returns a flight's deadline: that of the first caller, unless it has passed. A wall clock wrote it, and that clock may
// have been stepped since, so it is never later than a new deadline. It does not apply to a claim without a waiting caller, which no caller
// retries: that claim gets its full time again, late rather than early (I11).
func flightDeadline(r *ledger.Record, now time.Time, timeout time.Duration) time.Time {
	deadline := now.Add(timeout)
	if r != nil && r.State == ledger.Pending && !r.Unwaited && now.Before(r.Deadline) && r.Deadline.Before(deadline) {
		return r.Deadline
	}
	return deadline
}
