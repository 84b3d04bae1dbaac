// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"sync"
	"time"

	"navix.sh/atoll/hub/internal/background"
	"navix.sh/atoll/pkg/problem"
)

const (
	// endingEvery is the interval at which an unconfirmed end is sent to a cluster again.
	endingEvery = 2 * time.Second
	// maxEndings bounds what is remembered, endingsKept what each cluster has room for whatever others take. Ends with a key beyond that, and
	// those that a restart of the hub forgets, are found again in the key index of the cluster's next complete report.
	maxEndings, endingsKept = 10_000, 100
	// endingsOfCluster bounds the calls in flight to one cluster, endingsAtOnce those to all. The background has room for more, so that none
	// waits for it.
	endingsOfCluster = 128
	endingsAtOnce    = background.MaxFollowing * 3 / 4
)

// ending is what a cluster has to end: a sandbox, or an attempt whose sandbox is not known.
type ending struct {
	cluster string
	id      string
	hash    string
	attempt int32
}

// endings are the ends that a cluster has not confirmed: it was away, its API server was in trouble, or they are on their way. They are
// retried here; because a caller whose end was acknowledged does not retry, and the sandbox would run on. Each cluster has its own bounds;
// because one that is away for long must leave room for others (I10).
type endings struct {
	mu       sync.Mutex
	clusters map[string]*clusterEndings
	total    int
	asked    int // calls in flight
}

type clusterEndings struct {
	waiting map[ending]bool // true: a call is in flight
	asked   int             // calls in flight
}

func newEndings() *endings { return &endings{clusters: map[string]*clusterEndings{}} }

// add notes that an ending is not confirmed. It reports whether there is room for it.
func (e *endings) add(what ending) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.note(what) != nil
}

// begin is add for an ending whose call begins now, unless as many are in flight as may be: then it waits for its turn.
func (e *endings) begin(what ending) (now, kept bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.clusters[what.cluster]; c != nil && c.waiting[what] {
		return false, true // a call is in flight
	}
	c := e.note(what)
	if c == nil {
		return false, false
	}
	if now = c.asked < endingsOfCluster && e.asked < endingsAtOnce; now {
		e.call(c, what)
	}
	return now, true
}

// note is called with the lock held. It returns nil if there is no room.
func (e *endings) note(what ending) *clusterEndings {
	c := e.clusters[what.cluster]
	if c == nil {
		c = &clusterEndings{waiting: map[ending]bool{}}
		e.clusters[what.cluster] = c
	}
	_, known := c.waiting[what]
	if !known && len(c.waiting) >= endingsKept && e.total >= maxEndings {
		return nil
	}
	if !known {
		e.total++
	}
	e.called(c, what)
	c.waiting[what] = false
	return c
}

// call and called count a call that begins, and one that is over. The lock is held.
func (e *endings) call(c *clusterEndings, what ending) {
	c.waiting[what] = true
	c.asked++
	e.asked++
}

func (e *endings) called(c *clusterEndings, what ending) {
	if c.waiting[what] {
		c.asked--
		e.asked--
	}
}

func (e *endings) remove(what ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clusters[what.cluster]
	if c == nil {
		return
	}
	e.called(c, what)
	if _, known := c.waiting[what]; known {
		e.total--
	}
	delete(c.waiting, what)
	if len(c.waiting) == 0 {
		delete(e.clusters, what.cluster)
	}
}

// take returns endings without a call in flight, from the clusters by turns. Which clusters come first is chance; so each gets its turn.
func (e *endings) take() (out []ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for before := -1; before < len(out); {
		before = len(out)
		for _, c := range e.clusters {
			if e.asked >= endingsAtOnce {
				return out
			}
			if what, ok := c.next(); ok {
				e.call(c, what)
				out = append(out, what)
			}
		}
	}
	return out
}

// next returns an ending without a call in flight, if the cluster may have one more.
func (c *clusterEndings) next() (ending, bool) {
	if c.asked >= endingsOfCluster {
		return ending{}, false
	}
	for what, asked := range c.waiting {
		if !asked {
			return what, true
		}
	}
	return ending{}, false
}

func (e *endings) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.total
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
	for _, what := range s.endings.take() {
		if s.fleet.Forgotten(what.cluster, "") {
			s.endings.remove(what)
			continue
		}
		s.background.Follow("ending a sandbox", func(ctx context.Context) error {
			_ = s.sendEnd(ctx, what) // it is retried, and was logged when it failed first
			return nil
		})
	}
}

func (s *Service) sendEnd(ctx context.Context, what ending) error {
	if what.id == "" {
		return s.cancelAt(ctx, what.cluster, what.hash, what.attempt)
	}
	_, _, err := s.release(ctx, what.cluster, what.id)
	return err
}

// endAfter sends a cluster an end after the call from which it follows. What the cluster may not have in flight waits for its turn. Where
// there is no room for that either, a sandbox ends during the call; because one without a key is in no key index.
func (s *Service) endAfter(why string, what ending) {
	switch now, kept := s.endings.begin(what); {
	case now:
		s.background.Follow(why, func(ctx context.Context) error { return s.sendEnd(ctx, what) })
	case !kept && what.id != "":
		_ = s.sendEnd(s.background.Context(), what)
	}
}
