// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/history"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// passing are the reasons after which a caller with a key retries.
var passing = []problem.Reason{problem.Unavailable, problem.Recovering, problem.OutcomeUnknown, problem.Deadline}

// unused returns a claim key that no earlier test or run has used: keys outlive their sandboxes.
func unused(name string) string { return fmt.Sprintf("%s %d", name, time.Now().UnixNano()) }

// tryFor is a caller's timeout before it retries.
const tryFor = 5 * time.Second

// claimKey retries until it gets a response, as a caller with a key may, and returns it.
func (e *env) claimKey(ctx context.Context, key string) (*sandboxv1.Sandbox, error) {
	var answer *sandboxv1.Sandbox
	var broken error
	err := wait.Until(ctx, patience, fmt.Sprintf("claim key %q to be answered", key), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, tryFor)
		defer cancel()
		sandbox, err := e.claim(ctx, hub, &sandboxv1.CreateSandboxRequest{ClaimKey: key})
		if err == nil {
			answer = sandbox
			return nil
		}
		if !errors.Is(err, history.ErrHoldings) && slices.Contains(passing, problem.FromError(err).Reason) {
			return err
		}
		broken = fmt.Errorf("claim key %q: %w", key, err)
		return nil
	})
	return answer, errors.Join(err, broken)
}

// I2: a claim key returns at most one sandbox, and none is lost, while the hub and a worker are killed.
func TestI2_SameKeySameSandboxAcrossRestarts(t *testing.T) {
	ctx := testContext(t)
	const keys, callers, hubKills = keysAtOnce, 6, 3
	e := newEnv(ctx, t, "keyed", equally(keys/2)...)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	key := func(i int) string { return fmt.Sprintf("key-%d of %d", i, seed) }
	kills := killsAt(rnd, keys, hubKills)
	var answers atomic.Int64
	answered := make(chan struct{}, keys*2)
	group, groupCtx := errgroup.WithContext(ctx)
	for caller := range callers {
		group.Go(func() error {
			for i := caller; i < keys; i += callers {
				// Every caller retries, as if the first response had been lost.
				for range 2 {
					if _, err := e.claimKey(groupCtx, key(i)); err != nil {
						return err
					}
					answers.Add(1)
					answered <- struct{}{}
				}
			}
			return nil
		})
	}
	group.Go(func() error { return e.breakThings(groupCtx, kills, answered) })
	if err := group.Wait(); err != nil {
		t.Fatalf("%v (after %d answers; the hub was killed after %v of them)", err, answers.Load(), kills)
	}

	must.Succeed(t, heal(ctx))
	live := e.caller.Holdings.Live()
	if len(live) != keys {
		t.Errorf("%d keys have %d live sandboxes", keys, len(live))
	}
	for i := range keys {
		if _, err := e.claimKey(ctx, key(i)); err != nil {
			t.Errorf("asked again at the end: %v", err)
		}
	}
	mustVerify(ctx, t)
	e.wantOnly(ctx, t, live)
}

// killsAt chooses after how many responses the hub is killed.
func killsAt(rnd *rand.Rand, answers, n int) []int {
	at := make([]int, 0, n)
	for range n {
		at = append(at, 1+rnd.IntN(answers))
	}
	slices.Sort(at)
	return at
}

// breakThings kills the hub after that many responses, and the worker of west once, between the first two.
func (e *env) breakThings(ctx context.Context, kills []int, answered <-chan struct{}) error {
	seen := 0
	for i, at := range kills {
		for ; seen < at; seen++ {
			select {
			case <-answered:
			case <-ctx.Done():
				return nil
			}
		}
		if err := restart(ctx, atoll.Hub); err != nil {
			return err
		}
		if i == 0 {
			if err := restart(ctx, atoll.Worker("west")); err != nil {
				return err
			}
		}
	}
	return nil
}

// wantOnly checks that the Env's live Pods, in all clusters, are those that the callers hold.
func (e *env) wantOnly(ctx context.Context, t *testing.T, known map[string]string) {
	t.Helper()
	listed, err := hub.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Env: e.Name, PageSize: 1000})
	must.Succeed(t, err)
	for _, s := range listed.GetSandboxes() {
		if known[s.GetPodUid()] != s.GetId() && s.GetPhase() != sandboxv1.Phase_STOPPING {
			t.Errorf("%s on pod %s is %s, and no caller was given it", s.GetId(), s.GetPodUid(), s.GetPhase())
		}
	}
	if len(listed.GetSandboxes()) < len(known) || len(listed.GetUnreachableClusters()) > 0 {
		t.Errorf("%d sandboxes are listed, %d were answered; unreachable: %v", len(listed.GetSandboxes()), len(known),
			listed.GetUnreachableClusters())
	}
}

// I2, without faults: what a key means to several callers, with other parameters, and after the sandbox has ended.
func TestI2_WhatAKeyStandsFor(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "meaning", equally(2)...)
	key := unused("the key")

	var group errgroup.Group
	for range 10 {
		group.Go(func() error {
			_, err := e.claim(ctx, hub, &sandboxv1.CreateSandboxRequest{ClaimKey: key})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatalf("10 callers with one key: %v", err)
	}
	sandbox := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{ClaimKey: key})

	_, err := e.claim(ctx, hub, &sandboxv1.CreateSandboxRequest{ClaimKey: key, Image: swapImage})
	conflict := wantReason(t, err, problem.ClaimKeyConflict)
	if code := status.Code(errors.Unwrap(err)); code != codes.AlreadyExists || conflict.ClaimKey != key ||
		conflict.Reason.HTTPStatus() != 409 {
		t.Errorf("other parameters are answered %s (claimKey %q), want ALREADY_EXISTS and the key: %v", code, conflict.ClaimKey, err)
	}

	e.mustRelease(ctx, t, hub, sandbox)
	wait.For(t, patience, "the key to be answered with the terminal record", func(ctx context.Context) error {
		got, err := e.claim(ctx, hub, &sandboxv1.CreateSandboxRequest{ClaimKey: key})
		ended := got.GetPhase() == sandboxv1.Phase_ENDED && got.GetStopReason() == "Released"
		return errors.Join(err, wait.If(ended && got.GetId() == sandbox.GetId(), got))
	})
	// The record outlives the hub, and the worker that wrote it.
	must.Succeed(t, restart(ctx, atoll.Hub))
	must.Succeed(t, heal(ctx))
	claim, err := hub.GetClaim(ctx, &sandboxv1.GetClaimRequest{ClaimKey: key})
	if err != nil || claim.GetSandbox().GetId() != sandbox.GetId() || claim.GetSandbox().GetPhase() != sandboxv1.Phase_ENDED {
		t.Errorf("after a restart the claim reads %v, %v; want the record of %s", claim, err, sandbox.GetId())
	}
	again := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{ClaimKey: key})
	if again.GetId() != sandbox.GetId() || again.GetPhase() != sandboxv1.Phase_ENDED {
		t.Errorf("after a restart the key is answered %v, want the record of %s", again, sandbox.GetId())
	}
	mustVerify(ctx, t)
}
