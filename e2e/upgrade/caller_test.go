// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/history"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/pkg/problem"
)

const (
	namespace = "default"
	envName   = "upgrade"
	poolImage = "registry.example/python:3.13"
	swapImage = "registry.example/python:3.14"

	// callers of each kind: with a claim key and another image, and without.
	callers = 2
	// startupTimeout is what a claim gives the federation; callTimeout what its caller gives the call.
	startupTimeout = 45 * time.Second
	callTimeout    = 60 * time.Second
)

// load is callers that claim, use and release without a pause, and remember what they met.
type load struct {
	caller stack.EnvCaller
	tally  *tally
	quit   chan struct{}
	done   sync.WaitGroup

	mu     sync.Mutex
	errors []error
}

// startLoad begins to claim. End it with stop.
func startLoad(ctx context.Context) *load {
	l := &load{
		quit: make(chan struct{}), tally: newTally(),
		caller: stack.EnvCaller{Namespace: namespace, Env: envName, Holdings: history.NewHoldings()},
	}
	for i := range callers {
		l.done.Go(func() { l.run(ctx, fmt.Sprintf("load-%d", i)) })
		l.done.Go(func() { l.run(ctx, "") })
	}
	return l
}

// stop lets every caller finish what it has begun, and returns what was answered to them that should not have been.
func (l *load) stop() []error {
	close(l.quit)
	l.done.Wait()
	return l.errors
}

// run claims over and over, with keys that begin with the prefix, or without keys.
func (l *load) run(ctx context.Context, prefix string) {
	for n := 0; ; n++ {
		next := time.NewTimer(time.Duration(float64(pace) * (0.75 + rand.Float64()/2)))
		key := ""
		if prefix != "" {
			key = fmt.Sprintf("%s-%d", prefix, n)
		}
		if err := l.use(ctx, key); err != nil {
			l.mu.Lock()
			l.errors = append(l.errors, err)
			l.mu.Unlock()
		}
		select {
		case <-l.quit:
			next.Stop()
			return
		case <-next.C:
		}
	}
}

// use claims a sandbox, looks whether it still is what was answered, and gives it back.
func (l *load) use(ctx context.Context, key string) error {
	request := &sandboxv1.CreateSandboxRequest{ClaimKey: key}
	if key != "" {
		request.Image = swapImage
	}
	sandbox, err := l.claim(ctx, request)
	if err != nil {
		return err
	}
	if err := l.stillThere(ctx, sandbox); err != nil {
		return err
	}
	if key != "" {
		again, err := l.claim(ctx, request)
		if err != nil {
			return err
		}
		if again.GetId() != sandbox.GetId() || again.GetPhase() != sandboxv1.Phase_RUNNING {
			return fmt.Errorf("asked again with claim key %q, the answer is %s in phase %s, it was %s", key, again.GetId(), again.GetPhase(),
				sandbox.GetId())
		}
	}
	return l.release(ctx, sandbox)
}

// claim makes one claim and enters it into the holdings.
func (l *load) claim(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (sandbox *sandboxv1.Sandbox, err error) {
	r.StartupTimeout = durationpb.New(startupTimeout)
	what := "claim"
	if r.GetClaimKey() != "" {
		what = "claim with key"
	}
	err = l.retryUntilDone(ctx, what, func(ctx context.Context) (err error) {
		sandbox, err = l.caller.Claim(ctx, hub, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	if history.Over(sandbox) {
		return nil, fmt.Errorf("%s: the answer is %s in phase %s", what, sandbox.GetId(), sandbox.GetPhase())
	}
	return sandbox, nil
}

// stillThere holds the hub to an answer that it gave.
func (l *load) stillThere(ctx context.Context, sandbox *sandboxv1.Sandbox) error {
	var got *sandboxv1.Sandbox
	err := l.retryUntilDone(ctx, "get", func(ctx context.Context) (err error) {
		got, err = hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()})
		return err
	})
	if err != nil {
		return err
	}
	if got.GetPhase() != sandboxv1.Phase_RUNNING || got.GetPodUid() != sandbox.GetPodUid() {
		return fmt.Errorf("lost: sandbox %s was answered on pod %s, and is %s on pod %q: %v",
			sandbox.GetId(), sandbox.GetPodUid(), got.GetPhase(), got.GetPodUid(), got)
	}
	return nil
}

// release gives a sandbox back.
func (l *load) release(ctx context.Context, sandbox *sandboxv1.Sandbox) error {
	return l.retryUntilDone(ctx, "release", func(ctx context.Context) error { return l.caller.Release(ctx, hub, sandbox) })
}

// retryUntilDone calls again what was answered UNAVAILABLE, unchanged, after the time that the answer names.
func (l *load) retryUntilDone(ctx context.Context, what string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	begin := time.Now()
	for again := 0; ; again++ {
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		err := call(callCtx)
		cancel()
		if err == nil {
			l.tally.answered(what, again, time.Since(begin))
			return nil
		}
		if status.Code(err) != codes.Unavailable {
			return fmt.Errorf("%s, called for the %d. time after %s: %w", what, again+1, time.Since(begin).Round(time.Millisecond), err)
		}
		l.tally.refused(what, err)
		pause := problem.FromError(err).RetryAfter
		if pause == 0 { // it came from no program of ours
			pause = min(200*time.Millisecond<<again, time.Second)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, called %d times: %w", what, again+1, err)
		case <-time.After(pause):
		}
	}
}
