// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"sync"
	"time"

	"navix.sh/atoll/pkg/problem"
)

const (
	// endingEvery is the interval at which an unconfirmed end is sent to a cluster again.
	endingEvery = 2 * time.Second
	// endingsAtOnce bounds the calls of one round, maxEndings what is remembered. Ends beyond that, and those that a restart of
	// the hub forgets, are found again in the key index of the cluster's next complete report.
	endingsAtOnce = 256
	maxEndings    = 10_000
)

// ending is what a cluster has to end: a sandbox, or an attempt whose sandbox is not known.
type ending struct {
	cluster string
	id      string
	hash    string
	attempt int32
}

// endings are the ends that a cluster has not confirmed: it was away, or its API server was in trouble. They are retried here;
// because a caller whose end was acknowledged does not retry, and the sandbox would run on.
type endings struct {
	mu      sync.Mutex
	waiting map[ending]bool // true: a call is in flight
}

// add reports whether there is room for it.
func (e *endings) add(what ending) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.waiting[what]
	if known = known || len(e.waiting) < maxEndings; known {
		e.waiting[what] = false
	}
	return known
}

func (e *endings) remove(what ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting, what)
}

// take returns some endings without a call in flight.
func (e *endings) take(most int) (out []ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for what, asked := range e.waiting {
		if len(out) == most {
			break
		}
		if !asked {
			e.waiting[what] = true
			out = append(out, what)
		}
	}
	return out
}

func (e *endings) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.waiting)
}

// settle records the result of sending a cluster an end. It reports whether the end will be sent again.
func (e *endings) settle(what ending, err error) (repeated bool) {
	if err == nil || reasonOf(err) == problem.NotFound {
		e.remove(what)
		return false
	}
	return e.add(what)
}

// endAgain sends clusters again the ends that they have not confirmed.
func (s *Service) endAgain() {
	for _, what := range s.endings.take(endingsAtOnce) {
		if s.fleet.Forgotten(what.cluster, "") {
			s.endings.remove(what)
			continue
		}
		s.background.Follow("ending a sandbox", func(ctx context.Context) error {
			// A failed end is retried, and was logged when it failed first.
			if what.id != "" {
				_, _, _ = s.release(ctx, what.cluster, what.id)
			} else {
				_ = s.cancelAt(ctx, what.cluster, what.hash, what.attempt)
			}
			return nil
		})
	}
}
