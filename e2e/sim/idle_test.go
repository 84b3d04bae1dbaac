// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/hubtest"
)

// idleTimeout is the idle timeout of sandboxes that are used and then left.
const idleTimeout = 30 * time.Second

// use claims sandboxes one after the other, touches each for a while, and leaves it to its idle timeout.
func (l *load) use(draw *rand.Rand) {
	w := l.world
	for l.pause(time.Duration(draw.Int64N(int64(10 * time.Second)))) {
		id := w.claimToUse()
		if id == "" {
			continue
		}
		for range draw.IntN(6) {
			if !l.pause(time.Duration(1+draw.IntN(28))*time.Second) || !w.touch(id) {
				break
			}
		}
	}
}

// pause returns false when the load ends.
func (l *load) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.stop:
		return false
	case <-timer.C:
		return true
	}
}

func (w *world) claimToUse() string {
	ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
	defer end()
	began := time.Now()
	var got *sandboxv1.Sandbox
	err, heard := w.ask(func(h *hubtest.Hub) (err error) {
		got, err = h.Create(ctx, &sandboxv1.CreateSandboxRequest{Env: env, IdleTimeout: durationpb.New(idleTimeout), NoQueue: true})
		return err
	})
	if answerOf(got, err, heard).said != live {
		return ""
	}
	w.history.give("", got)
	w.history.used(got.GetId(), began)
	return got.GetId()
}

// touch reports whether the sandbox may live.
func (w *world) touch(id string) bool {
	ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
	defer end()
	began := time.Now()
	var got *sandboxv1.Sandbox
	err, heard := w.ask(func(h *hubtest.Hub) (err error) {
		got, err = h.Sandboxes.Touch(ctx, id)
		return err
	})
	if err != nil || !heard {
		return true
	}
	if got.GetPhase() != sandboxv1.Phase_RUNNING {
		return false
	}
	w.history.used(id, began)
	return true
}

// used records that a sandbox was active, at that time or shortly after.
func (h *history) used(id string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.givenUp[id] = struct{}{} // it ends without a request
	h.lastUse[id] = at
}

// checkUsed: a sandbox that is left ends by its idle timeout, and one in use never does (I6, I11), whatever clocks are stepped.
func (w *world) checkUsed(allowed allowance) {
	w.eventually("sandboxes that are left to end", 2*time.Minute, func() error {
		truth := w.truth()
		for id := range w.history.lastUse {
			if s := truth[id]; s.Ended.IsZero() && !s.Forgotten {
				return fmt.Errorf("sandbox %s lives, %s after it was used last", id, time.Since(w.history.lastUse[id]))
			}
		}
		return nil
	})
	truth := w.truth()
	for id, last := range w.history.lastUse {
		s := truth[id]
		if s.Ended.IsZero() || s.Forgotten || allowed.endings || allowed.losses {
			continue
		}
		if lived := s.Ended.Sub(last); lived < idleTimeout {
			w.problem("I6: sandbox %s ended (%s) %s after it was used, with an idle timeout of %s", id, s.Reason, lived, idleTimeout)
		}
	}
}
