// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/worker/internal/inventory"
)

// action is an action on a sandbox that callers wait for.
type action string

const (
	ready    action = "Ready"
	pausing  action = "Pause"
	resuming action = "Resume"
)

// errLate means that the time of a wait is up.
var errLate = errors.New("not in time")

// watch is a sandbox's current action, shared by all callers that wait for it. It is removed with the last of them (I10).
type watch struct {
	action  action
	users   int
	changed chan struct{} // closed by the next change of the sandbox
}

// join returns the watch of a sandbox; leave releases it. join fails if the sandbox has another action.
func (l locked) join(id string, a action) (*watch, error) {
	w := l.watches[id]
	switch {
	case w == nil:
		w = &watch{action: a, changed: make(chan struct{})}
		l.watches[id] = w
	case w.action != a:
		return nil, fmt.Errorf("sandbox %s: %s is under way, so that %s has to wait", id, w.action, a)
	}
	w.users++
	return w, nil
}

func (l locked) leave(id string, w *watch) {
	if w.users--; w.users == 0 {
		delete(l.watches, id)
	}
}

// wake wakes the callers that wait for a sandbox.
func (l locked) wake(id string) {
	if w := l.watches[id]; w != nil {
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

// wait calls ask until it is done or returns an error: immediately, and again after each change of the sandbox, including a change during
// the call. When time is up, wait calls ask once more after a live read, because the index can lag, and then returns errLate.
func (s *Service) wait(ctx context.Context, id string, w *watch, within time.Duration, ask func() (done bool, err error)) error {
	timer := s.clock.NewTimer(within)
	defer timer.Stop()
	for {
		var changed <-chan struct{}
		s.inventory.View(func(*inventory.View) { changed = w.changed })
		if done, err := ask(); done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-timer.C():
			if err := s.refresh(ctx, id); err != nil {
				return fmt.Errorf("%w: %w", errLate, err)
			}
			if done, err := ask(); done || err != nil {
				return err
			}
			return errLate
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// refresh updates the index with a live read of a sandbox's Pod.
func (s *Service) refresh(ctx context.Context, id string) error {
	var pod *corev1.Pod // read under the lock, because events replace it
	s.inventory.View(func(v *inventory.View) {
		if p := v.Sandbox(id); p != nil {
			pod = p.Object()
		}
	})
	if pod == nil {
		return nil
	}
	return s.inventory.Reread(ctx, pod)
}
