// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/history"
	"navix.sh/atoll/pkg/link/linkfaults"
)

// oneKeyAThousandTimes claims with one key from a thousand concurrent callers, and kills the hub meanwhile.
func oneKeyAThousandTimes(ctx context.Context, s *scenario) error {
	const times = 1000
	key := s.load.name + "-thousand"
	answers := make([]*sandboxv1.Sandbox, times)
	errs := make([]error, times)
	var calling sync.WaitGroup
	for i := range times {
		calling.Go(func() { answers[i], errs[i] = s.load.ask(ctx, request(key)) })
	}
	s.between(ctx, 20*time.Millisecond, 500*time.Millisecond)
	crashed := s.hubProgram().crash(ctx)
	calling.Wait()
	if err := errors.Join(append(errs, crashed, s.heal())...); err != nil {
		return err
	}
	s.load.holdings.Answered(answers[0])
	s.kept = append(s.kept, answers[0])
	for _, a := range answers {
		if a.GetId() != answers[0].GetId() || a.GetPodUid() != answers[0].GetPodUid() {
			return fmt.Errorf("I2: one key was answered %s and %s", answers[0].GetId(), a.GetId())
		}
	}
	return nil
}

// racesOfOneKey lets claims, retries, cancels and releases of a key race over slow links, with more claims than Pods.
func racesOfOneKey(ctx context.Context, s *scenario) error {
	slow := linkfaults.Rule{Kinds: []string{"dispatch", "answer"}, DelayMillis: int64(s.random.IntN(150))}
	for _, name := range names() {
		if err := s.spoil(name, s.seed, slow); err != nil {
			return err
		}
	}
	s.details = fmt.Sprintf(" %d ms of delay", slow.DelayMillis)
	var racing sync.WaitGroup
	for i := range 3 * *podsFlag {
		key := fmt.Sprintf("%s-race-%d", s.load.name, i)
		begin := func() time.Duration { return time.Duration(s.random.Int64N(int64(time.Second))) }
		for range 3 {
			after := begin()
			racing.Go(func() { s.race(ctx, after, key) })
		}
		after := begin()
		racing.Go(func() {
			if !linger(ctx, after) {
				return
			}
			cancel := func(ctx context.Context) error { return s.load.cancel(ctx, key) }
			if s.load.retryUntilDone(ctx, "cancel", cancel) != nil {
				// There was nothing to cancel: the caller that gets the sandbox releases it.
				_ = cancel(ctx)
			}
		})
	}
	racing.Wait()
	return s.heal()
}

// race claims, and releases the sandbox that it gets.
func (s *scenario) race(ctx context.Context, after time.Duration, key string) {
	if !linger(ctx, after) {
		return
	}
	sandbox, err := s.load.ask(ctx, request(key))
	if err != nil {
		s.load.fail("claim", "", fmt.Errorf("claim with key %s, in a race: %w", key, err))
		return
	}
	if history.Over(sandbox) {
		return
	}
	if err := s.load.releaseUntilDone(ctx, key, sandbox); err != nil {
		s.load.fail(lost, sandbox.GetId(), fmt.Errorf("releasing %s in a race: %w", sandbox.GetId(), err))
	}
}
