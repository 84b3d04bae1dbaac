// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/worker/internal/idle"
)

const (
	// pause is for how long nothing was said when what follows is written down at once. Package idle asks as often.
	pause = 30 * time.Second
	// touchTimeout bounds the write of that.
	touchTimeout = 10 * time.Second
)

// Activity is when sandboxes were last talked with. It has an entry for each live sandbox that was ever reached.
type Activity struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last map[string]time.Time // by sandbox id
}

var _ idle.LastActiveSource = (*Activity)(nil)

// NewActivity answers activity of no sandbox.
func NewActivity(c clock.PassiveClock) *Activity {
	return &Activity{clock: c, last: map[string]time.Time{}}
}

// GetLastActive answers what is known.
func (a *Activity) GetLastActive(context.Context) (map[string]time.Time, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.last), nil
}

// note notes activity, and reports whether it ends a pause.
func (a *Activity) note(id string) bool {
	now := a.clock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ok := a.last[id]
	a.last[id] = now
	return ok && now.Sub(last) >= pause
}

func (a *Activity) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.last, id)
}

// noteActive notes activity, and has it written down where it ends a pause.
func (s *Service) noteActive(id string) {
	if !s.opts.Activity.note(id) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), touchTimeout)
		defer cancel()
		if _, err := s.opts.Claims.Touch(ctx, id); err != nil {
			s.opts.Log.Info("Could not write down that a sandbox is active", "sandbox", id, "error", err.Error())
		}
	}()
}
