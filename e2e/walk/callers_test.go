// SPDX-License-Identifier: Apache-2.0

//go:build kind

package walk_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// callers claim and release, each as fast as pace, until they are told to end.
type callers struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	claims  int
	retries int
	slowest time.Duration
	errs    []error
}

const (
	numberOfCallers = 1
	// pace of each: for a Pod that replaces a released one, kubelets that share two processors take seconds of both.
	pace = 3 * time.Second
	// callTimeout bounds a call, and callPatience a claim with all its retries.
	callTimeout, callPatience = 30 * time.Second, 4 * time.Minute
)

// claiming starts callers of an Env. Each claim has a key; what the API calls UNAVAILABLE is called again, unchanged.
func claiming(t *testing.T, env string) *callers {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c := &callers{stop: stop}
	prefix := fmt.Sprint(time.Now().UnixNano())
	for i := range numberOfCallers {
		c.done.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				begin := time.Now()
				retries, err := claimOnce(env, fmt.Sprintf("%s-%d-%d", prefix, i, n))
				c.mu.Lock()
				c.claims, c.retries, c.slowest = c.claims+1, c.retries+retries, max(c.slowest, time.Since(begin))
				c.errs = append(c.errs, err)
				c.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(begin.Add(pace))):
				}
			}
		})
	}
	t.Cleanup(func() { stop(); c.done.Wait() })
	return c
}

func claimOnce(env, key string) (retries int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callPatience)
	defer cancel()
	request := &sandboxv1.CreateSandboxRequest{Env: env, ClaimKey: key, StartupTimeout: durationpb.New(callTimeout)}
	var id string
	for range 2 { // the second time, as a caller whose first answer was lost
		again, err := retried(ctx, func(ctx context.Context) error {
			sandbox, err := hub.CreateSandbox(ctx, request)
			if err == nil && id != "" && sandbox.GetId() != id {
				err = fmt.Errorf("it got sandbox %s and then %s", id, sandbox.GetId())
			}
			if err == nil {
				id = sandbox.GetId()
			}
			return err
		})
		if retries += again; err != nil {
			return retries, fmt.Errorf("claim %s: %w", key, err)
		}
	}
	more, err := retried(ctx, func(ctx context.Context) error {
		return hub.Release(ctx, id)
	})
	return retries + more, err
}

// retried repeats what failed as UNAVAILABLE, and what a caller with a key was not told the outcome of.
func retried(ctx context.Context, call func(context.Context) error) (retries int, err error) {
	for {
		one, cancel := context.WithTimeout(ctx, callTimeout)
		err = call(one)
		unknown := one.Err() != nil
		cancel()
		p := problem.FromError(err)
		unknown = unknown || err != nil && (p.Reason == problem.Unavailable || p.Reason == problem.OutcomeUnknown)
		if err == nil || !unknown || ctx.Err() != nil {
			return retries, err
		}
		retries++
		select {
		case <-ctx.Done():
			return retries, err
		case <-time.After(max(p.RetryAfter, 200*time.Millisecond)):
		}
	}
}

// end stops the callers, and fails the test if a claim failed.
func (c *callers) end(t *testing.T) {
	t.Helper()
	c.stop()
	c.done.Wait()
	t.Logf("%d claims meanwhile, %d calls repeated, the slowest claim took %s", c.claims, c.retries, c.slowest.Round(time.Millisecond))
	if err := errors.Join(c.errs...); err != nil || c.claims == 0 {
		t.Errorf("of %d claims failed: %v", c.claims, err)
	}
}

// claimedSince waits until so many claims more have ended.
func (c *callers) claimedSince(t *testing.T, more int) {
	t.Helper()
	count := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.claims
	}
	from := count()
	wait.For(t, patience, fmt.Sprintf("%d claims more", more), func(context.Context) error {
		return wait.If(count() >= from+more, count()-from)
	})
}
