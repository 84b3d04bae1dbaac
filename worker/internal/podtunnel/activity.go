// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/worker/internal/idle"
)

const (
	// touchEvery is the interval at which traffic is reported to package idle, which decides when to write it.
	touchEvery = 2 * time.Second
	// touchTimeout bounds that write.
	touchTimeout = 10 * time.Second
)

// Activity records when sandboxes last had traffic. It has an entry for each live sandbox that was ever reached.
type Activity struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last map[string]talk // by sandbox id
}

type talk struct{ last, told time.Time }

var _ idle.LastActiveSource = (*Activity)(nil)

// NewActivity returns an Activity without sandboxes.
func NewActivity(c clock.PassiveClock) *Activity {
	return &Activity{clock: c, last: map[string]talk{}}
}

// GetLastActive returns the last activity of each sandbox.
func (a *Activity) GetLastActive(context.Context) (map[string]time.Time, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	active := make(map[string]time.Time, len(a.last))
	for id, t := range a.last {
		active[id] = t.last
	}
	return active, nil
}

// note records activity, and returns whether to report it now.
func (a *Activity) note(id string) (tell bool) {
	now := a.clock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.last[id]
	t.last = now
	if tell = now.Sub(t.told) >= touchEvery; tell {
		t.told = now
	}
	a.last[id] = t
	return tell
}

func (a *Activity) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.last, id)
}

// noteActive records activity, and reports it for a write when due. No caller waits for the write: the activity that is lost if the process
// ends meanwhile is less than package idle allows for.
func (s *Service) noteActive(id string) {
	if !s.opts.Activity.note(id) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), touchTimeout)
		defer cancel()
		if _, err := s.opts.Sandboxes.Touch(ctx, id); err != nil {
			s.opts.Log.Info("Could not write down that a sandbox is active", "sandbox", id, "error", err.Error())
		}
	}()
}
