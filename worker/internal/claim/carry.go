// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// launch starts an op in its own goroutine.
func (l locked) launch(caller context.Context, o *op) {
	ctx, cancel := context.WithCancel(telemetry.Adopt(l.Leading(), caller))
	o.cancel = cancel
	s := l.Service
	l.Begin(func() { s.carry(ctx, o) })
}

// carry runs an op to its end and wakes its callers.
func (s *Service) carry(ctx context.Context, o *op) {
	defer o.cancel()
	err := s.obtain(ctx, o)
	s.update(func(l locked) {
		if l.ops[o.claim.KeyHash] == o {
			delete(l.ops, o.claim.KeyHash)
		}
		if err == nil && o.canceled {
			// The cancel arrived while the claim was being written.
			end := sandboxes.Canceled("Canceled", "the claim was canceled before its sandbox was returned")
			s.sandboxes.Dispose(l.State, o.id, end)
			err = disposition.Refuse(problem.NoCapacity, "the claim was canceled")
		}
		if disposition.Refused(err) && o.claim.KeyHash != "" && !o.claim.Local {
			l.rememberRefusal(o.claim.KeyHash, o.claim.Attempt, err)
			for _, p := range l.WithKey(o.claim.KeyHash) {
				l.enforce(p) // appeared while the claim waited
			}
		}
		if err != nil {
			l.lose(o)
		}
		o.err = err
		close(o.done)
	})
}

// obtain gets a Pod and writes the claim on it. If another writer takes the Pod, obtain tries the next one, from the same place in the
// queue.
func (s *Service) obtain(ctx context.Context, o *op) error {
	if err := s.checkSecrets(ctx, &o.claim); err != nil {
		return err
	}
	for range maxTries {
		hold, err := s.acquire(ctx, o)
		if err != nil {
			return err
		}
		taken, err := s.take(ctx, o, hold)
		if err != nil {
			return err
		}
		if taken {
			s.metrics.queue.Observe(s.clock.Since(o.started).Seconds())
			return nil
		}
	}
	return disposition.Refuse(problem.NoCapacity, "pool %s: %d Pods were lost to other writers", o.claim.Pool.Name, maxTries)
}

// await waits for an op. If the caller leaves, an op without a key ends, and one with a key continues for the next call.
func (s *Service) await(ctx context.Context, o *op) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	if o.claim.KeyHash != "" {
		return disposition.Doubt("the claim continues; the same call with the same claimKey joins it")
	}
	s.update(func(l locked) {
		select {
		case <-o.done:
			if o.err == nil {
				s.sandboxes.Dispose(l.State, o.id, sandboxes.Abandoned())
			}
		default:
			l.abort(o)
		}
	})
	return disposition.Refuse(problem.Deadline, "the caller did not wait")
}

// abort cancels a waiting op. If the op is already being written, carry disposes of its sandbox.
func (l locked) abort(o *op) {
	o.canceled = true
	o.cancel()
}
