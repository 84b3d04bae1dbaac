// SPDX-License-Identifier: Apache-2.0

package claims

import (
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
	// endingsOfCluster bounds the calls in flight to one cluster. To all together, first sends begin while less than mostBegun are in flight,
	// and repeats while less than mostRepeated are. A cluster with less than fewEndings has room for a quarter of the background more; because
	// a few that are silent must leave room for others (I7). The background has room for all, so that none waits for it.
	endingsOfCluster, fewEndings = 128, 4
	mostBegun                    = background.MaxFollowing * 3 / 4
	mostRepeated                 = background.MaxFollowing / 2
	moreForFew                   = background.MaxFollowing / 4
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
	waiting map[ending]bool // true: it was sent, and is not confirmed
	asked   map[ending]bool // those with a call in flight, also where another call has confirmed them meanwhile
}

func newEndings() *endings { return &endings{clusters: map[string]*clusterEndings{}} }

// add notes an ending that was sent and not confirmed. It reports whether there is room for it.
func (e *endings) add(what ending) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.note(what)
	if c == nil {
		return false
	}
	c.waiting[what] = true
	return true
}

// begin notes an ending whose call begins now, unless as many are in flight as may be: then it waits for its turn.
func (e *endings) begin(what ending) (now, kept bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.note(what)
	if c == nil {
		return false, false
	}
	if now = !c.asked[what] && e.room(c, mostBegun); now {
		e.ask(c, what)
	}
	return now, true
}

// note is called with the lock held. It returns nil if there is no room.
func (e *endings) note(what ending) *clusterEndings {
	c := e.clusters[what.cluster]
	if c == nil {
		c = &clusterEndings{waiting: map[ending]bool{}, asked: map[ending]bool{}}
		e.clusters[what.cluster] = c
	}
	if _, known := c.waiting[what]; known {
		return c
	}
	if len(c.waiting) >= endingsKept && e.total >= maxEndings {
		return nil
	}
	c.waiting[what] = false
	e.total++
	return c
}

// room reports whether a call to a cluster may begin while less than most are in flight to all. The lock is held.
func (e *endings) room(c *clusterEndings, most int) bool {
	if len(c.asked) < fewEndings {
		most += moreForFew
	}
	return len(c.asked) < endingsOfCluster && e.asked < most
}

// ask counts a call that begins, until over. The lock is held.
func (e *endings) ask(c *clusterEndings, what ending) {
	c.asked[what] = true
	e.asked++
}

// over ends a call that was counted. After a success the call of the next ending that waits for the cluster begins instead.
func (e *endings) over(what ending, success bool) (next ending, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clusters[what.cluster]
	delete(c.asked, what)
	e.asked--
	if success {
		if next, more = c.next(); more {
			e.ask(c, next)
		}
	}
	e.tidy(what.cluster, c)
	return next, more
}

func (e *endings) remove(what ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clusters[what.cluster]
	if c == nil {
		return
	}
	if _, known := c.waiting[what]; known {
		delete(c.waiting, what)
		e.total--
	}
	e.tidy(what.cluster, c)
}

// tidy is called with the lock held.
func (e *endings) tidy(cluster string, c *clusterEndings) {
	if len(c.waiting) == 0 && len(c.asked) == 0 {
		delete(e.clusters, cluster)
	}
}

// take returns endings without a call in flight, from the clusters by turns. Which clusters come first is chance; so each gets its turn.
func (e *endings) take() (out []ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for before := -1; before < len(out); {
		before = len(out)
		for _, c := range e.clusters {
			most := mostRepeated
			if len(c.asked) == 0 {
				most = mostBegun // its first repeat waits for no first sends to others
			}
			if !e.room(c, most) {
				continue
			}
			if what, ok := c.next(); ok {
				e.ask(c, what)
				out = append(out, what)
			}
		}
	}
	return out
}

// next returns an ending without a call in flight.
func (c *clusterEndings) next() (ending, bool) {
	for what := range c.waiting {
		if !c.asked[what] {
			return what, true
		}
	}
	return ending{}, false
}

// count counts the endings that were sent and not confirmed, and those that wait for their first call.
func (e *endings) count() (unconfirmed, unsent int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.clusters {
		for what, failed := range c.waiting {
			switch {
			case failed:
				unconfirmed++
			case !c.asked[what]:
				unsent++
			}
		}
	}
	return unconfirmed, unsent
}

// failed reports whether an ending was sent and not confirmed.
func (e *endings) failed(what ending) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clusters[what.cluster]
	return c != nil && c.waiting[what]
}

// settle records the result of sending a cluster an end, by whatever call. It reports whether the end will be sent again.
func (e *endings) settle(what ending, err error) (repeated bool) {
	if confirmed(err) {
		e.remove(what)
		return false
	}
	return e.add(what)
}

func confirmed(err error) bool { return err == nil || reasonOf(err) == problem.NotFound }

// endAgain sends clusters the ends that they have not confirmed, and those that wait for their turn.
func (s *Service) endAgain() {
	for _, what := range s.endings.take() {
		if s.fleet.Forgotten(what.cluster, "") {
			s.endings.remove(what)
			s.endings.over(what, false)
			continue
		}
		s.followEnd(what)
	}
}

// followEnd sends a cluster an end whose call was counted, and while the cluster confirms them the next ones that wait.
func (s *Service) followEnd(what ending) {
	s.background.Follow(func() {
		for more := true; more; {
			what, more = s.endings.over(what, s.sendEnd(what))
		}
	})
}

// sendEnd reports whether the cluster has confirmed the end. It logs the first time that it has not.
func (s *Service) sendEnd(what ending) bool {
	ctx, again := s.background.Context(), s.endings.failed(what)
	var err error
	if what.id == "" {
		err = s.cancelAt(ctx, what.cluster, what.hash, what.attempt)
	} else {
		_, _, err = s.release(ctx, what.cluster, what.id)
	}
	if confirmed(err) {
		return true
	}
	if !again && ctx.Err() == nil {
		s.log.Info("A cluster has not confirmed an end", "cluster", what.cluster, "claimKey", what.hash, "sandbox", what.id,
			"error", err.Error())
	}
	return false
}

// endAfter sends a cluster an end after the call from which it follows. What the cluster may not have in flight waits for its turn. Where
// there is no room for that either, it is sent once.
func (s *Service) endAfter(what ending) {
	switch now, kept := s.endings.begin(what); {
	case now:
		s.followEnd(what)
	case !kept:
		s.background.Follow(func() { s.sendEnd(what) })
	}
}
