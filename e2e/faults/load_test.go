// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/history"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// callers of each kind, with and without keys.
	callers = 2
	// startupTimeout is a claim's; callTimeout, of a call, is shorter, so that callers retry while the federation works on the claim.
	startupTimeout = 20 * time.Second
	callTimeout    = 8 * time.Second
	// holdAtMost is how long a caller uses a sandbox.
	holdAtMost = 600 * time.Millisecond
)

// load is callers that claim, use and end sandboxes without a pause, and record the responses.
type load struct {
	world          *world
	name           string // prefix of all keys
	history        *history.History
	holdings       *history.Holdings
	limit          int64 // of claims; 0: none
	forgets        bool  // drops finished keys, to save memory
	begun          atomic.Int64
	unacknowledged atomic.Int64 // sandboxes that were reaped
	restarts       int          // of programs that exited
	patience       atomic.Int64 // of callers, in nanoseconds
	quit           chan struct{}
	done           sync.WaitGroup

	mu       sync.Mutex
	wrong    []breach
	answered map[string]answered  // by sandbox
	latest   map[string]time.Time // when a cluster's sandbox was last returned for the first time
	asked    map[string]time.Time // when a key was first claimed
	pardons  []pardon
	excused  map[string]string // sandboxes that may be gone, and why
	refusals map[problem.Reason]int
}

// breach is a violation.
type breach struct {
	kind    string // lost and evicted are counted
	sandbox string // that it concerns; empty for none
	err     error
}

const (
	lost    = "lost"
	evicted = "evicted"
)

func newLoad(w *world, name string) *load {
	l := &load{
		world: w, name: name, history: history.New(), holdings: history.NewHoldings(), quit: make(chan struct{}),
		answered: map[string]answered{}, latest: map[string]time.Time{}, asked: map[string]time.Time{}, excused: map[string]string{},
		refusals: map[problem.Reason]int{},
	}
	l.patience.Store(int64(patience))
	return l
}

// start starts that many callers of each kind.
func (l *load) start(ctx context.Context, seed uint64, callers int) {
	for i := range callers {
		keyed, plain := rand.New(rand.NewPCG(seed, uint64(2*i))), rand.New(rand.NewPCG(seed, uint64(2*i+1)))
		l.done.Go(func() {
			l.over(ctx, func(n int) { l.useKeyed(ctx, keyed, fmt.Sprintf("%s-%d-%d", l.name, i, n)) })
		})
		l.done.Go(func() {
			l.over(ctx, func(int) { l.usePlain(ctx, plain) })
		})
	}
}

func (l *load) over(ctx context.Context, use func(n int)) {
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-l.quit:
			return
		default:
		}
		if l.limit > 0 && l.begun.Load() >= l.limit {
			return
		}
		l.begun.Add(1)
		use(n)
	}
}

// stop lets every caller finish its current round.
func (l *load) stop() {
	close(l.quit)
	l.done.Wait()
}

func (l *load) fail(kind, sandbox string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, breach{kind, sandbox, err})
}

// request is a claim for any cluster, or for the given ones.
func request(key string, in ...string) *sandboxv1.CreateSandboxRequest {
	r := &sandboxv1.CreateSandboxRequest{
		Namespace: namespace, Env: envName, ClaimKey: key, StartupTimeout: durationpb.New(startupTimeout),
		Clusters: in, RequireClusters: len(in) > 0,
	}
	if key != "" {
		r.Image = swapImage
	} else {
		r.FirstActivityTimeout = durationpb.New(0) // kept sandboxes are not used
	}
	return r
}

// caller claims what only it uses.
func (l *load) caller() stack.EnvCaller {
	return stack.EnvCaller{Namespace: namespace, Env: envName, Holdings: l.holdings}
}

// create makes one call, and records its outcome.
func (l *load) create(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	done, asked := func(*sandboxv1.Sandbox) {}, l.askedSince(r.GetClaimKey())
	if r.GetClaimKey() != "" {
		done = l.history.Create(r.GetClaimKey())
	}
	sandbox, err := l.world.hub.CreateSandbox(ctx, r)
	if err != nil {
		done(nil)
		return nil, err
	}
	done(sandbox)
	l.note(sandbox, asked)
	return sandbox, nil
}

// ask retries a claim until it gets a response.
func (l *load) ask(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (sandbox *sandboxv1.Sandbox, err error) {
	err = l.retryUntilDone(ctx, "claim", func(ctx context.Context) (err error) {
		sandbox, err = l.create(ctx, r)
		return err
	})
	return sandbox, err
}

// claim is ask for a key's only caller: a live sandbox is recorded as held.
func (l *load) claim(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	sandbox, err := l.ask(ctx, r)
	if err == nil && !history.Over(sandbox) {
		l.holdings.Answered(sandbox)
	}
	return sandbox, err
}

// useKeyed claims with a key, claims again, ends the claim one way or the other, and asks for its outcome.
func (l *load) useKeyed(ctx context.Context, random *rand.Rand, key string) {
	var racing sync.WaitGroup
	defer func() {
		racing.Wait()
		if l.forgets {
			l.history.Forget(key)
			l.mu.Lock()
			delete(l.asked, key)
			l.mu.Unlock()
		}
	}()
	r := request(key)
	canceled := random.IntN(10) == 0
	switch {
	case canceled: // a cancel that races the grant
		after := time.Duration(random.Int64N(int64(200 * time.Millisecond)))
		racing.Go(func() {
			if linger(ctx, after) {
				_ = l.cancel(ctx, key)
			}
		})
	case random.IntN(5) == 0: // a second caller with the same key
		racing.Go(func() { _, _ = l.create(ctx, r) })
	}
	claim := l.claim
	if canceled {
		claim = l.ask // another caller may release it at any time
	}
	sandbox, err := claim(ctx, r)
	if err != nil {
		l.fail("claim", "", fmt.Errorf("claim with key %s: %w", key, err))
		return
	}
	racing.Wait()
	hold := time.Duration(random.Int64N(int64(holdAtMost)))
	if history.Over(sandbox) || !linger(ctx, hold) {
		return
	}
	if !canceled && random.IntN(3) == 0 {
		if _, err := l.claim(ctx, r); err != nil {
			l.fail("claim", sandbox.GetId(), fmt.Errorf("claim again with key %s: %w", key, err))
		}
	}
	l.holdings.Releasing(sandbox)
	end := func(ctx context.Context) error { return l.release(ctx, key, sandbox) }
	if random.IntN(5) < 2 {
		end = func(ctx context.Context) error { return l.cancel(ctx, key) }
	}
	if err := l.retryUntilDone(ctx, "end", end); err != nil {
		l.fail(lost, sandbox.GetId(), fmt.Errorf("ending %s of key %s: %w", sandbox.GetId(), key, err))
		return
	}
	if random.IntN(3) == 0 {
		if _, err := l.claim(ctx, r); err != nil {
			l.fail("claim", sandbox.GetId(), fmt.Errorf("claim with key %s, whose sandbox has ended: %w", key, err))
		}
	}
}

// usePlain claims without a key, checks that the sandbox is the returned one, and releases it.
func (l *load) usePlain(ctx context.Context, random *rand.Rand) {
	sandbox, err := l.claim(ctx, request(""))
	if err != nil {
		l.fail("claim", "", fmt.Errorf("claim without a key: %w", err))
		return
	}
	if !linger(ctx, time.Duration(random.Int64N(int64(holdAtMost)))) {
		return
	}
	l.mustBeThere(ctx, sandbox)
	l.letGo(ctx, "", sandbox)
}

// letGo releases a held sandbox.
func (l *load) letGo(ctx context.Context, key string, sandbox *sandboxv1.Sandbox) {
	l.holdings.Releasing(sandbox)
	if err := l.releaseUntilDone(ctx, key, sandbox); err != nil {
		l.fail(lost, sandbox.GetId(), fmt.Errorf("releasing %s: %w", sandbox.GetId(), err))
	}
}

func (l *load) releaseUntilDone(ctx context.Context, key string, sandbox *sandboxv1.Sandbox) error {
	return l.retryUntilDone(ctx, "release", func(ctx context.Context) error { return l.release(ctx, key, sandbox) })
}

// mustBeThere checks that a returned sandbox exists.
func (l *load) mustBeThere(ctx context.Context, sandbox *sandboxv1.Sandbox) {
	var got *sandboxv1.Sandbox
	err := l.retryUntilDone(ctx, "get", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		got, err = l.world.hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()})
		return err
	})
	switch {
	case err != nil:
		l.fail(lost, sandbox.GetId(), fmt.Errorf("I2, lost: %s was answered: %w", sandbox.GetId(), err))
	case got.GetPhase() != sandboxv1.Phase_RUNNING || got.GetPodUid() != sandbox.GetPodUid():
		l.fail(evicted, sandbox.GetId(), fmt.Errorf("I6, evicted: %s was answered on pod %s and is %s on %q (%s: %s)",
			sandbox.GetId(), sandbox.GetPodUid(), got.GetPhase(), got.GetPodUid(), got.GetFailureReason(), got.GetFailureMessage()))
	}
}

// release ends a sandbox by its id.
func (l *load) release(ctx context.Context, key string, sandbox *sandboxv1.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	done := func(*sandboxv1.Sandbox) {}
	if key != "" {
		done = l.history.End(key)
	}
	record, err := l.world.hub.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: sandbox.GetId()})
	done(record)
	return err
}

// cancel ends a claim by its key. A key that the hub does not have is not ended by it.
func (l *load) cancel(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	done := l.history.End(key)
	claim, err := l.world.hub.CancelClaim(ctx, &sandboxv1.CancelClaimRequest{ClaimKey: key, Namespace: namespace})
	switch {
	case err == nil:
		done(claim.GetSandbox())
	case problem.FromError(err).Reason != problem.NotFound:
		done(nil)
	}
	return err
}

// retryUntilDone makes a call until it gets a response, as documented for callers: again, unchanged, when the outcome is
// unknown or the refusal is transient. A fault that begins meanwhile may extend the patience.
func (l *load) retryUntilDone(ctx context.Context, what string, call func(context.Context) error) error {
	begin := time.Now()
	for tries := 1; ; tries++ {
		err := call(ctx)
		if err == nil {
			return nil
		}
		p := problem.FromError(err)
		l.mu.Lock()
		l.refusals[p.Reason]++
		l.mu.Unlock()
		if !passes(p.Reason) && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%s, call %d: %w", what, tries, err)
		}
		if time.Since(begin) > time.Duration(l.patience.Load()) || !linger(ctx, max(100*time.Millisecond, min(p.RetryAfter, time.Second))) {
			return fmt.Errorf("%s, called %d times in %s: %w", what, tries, time.Since(begin).Round(time.Second), err)
		}
	}
}

// passes reports whether a retry makes sense.
func passes(r problem.Reason) bool {
	switch r {
	case problem.Unavailable, problem.NoCapacity, problem.QueueFull, problem.RateLimited, problem.Recovering, problem.OutcomeUnknown,
		problem.Deadline:
		return true
	}
	return false
}

// linger waits, and reports whether ctx is still valid.
func linger(ctx context.Context, d time.Duration) bool {
	return wallclock.Sleep(ctx, clock.RealClock{}, d) == nil
}
