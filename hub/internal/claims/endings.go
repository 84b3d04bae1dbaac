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
	// maxEndings bounds the remembered ends of all clusters. endingsKept is the number that each cluster has room for in any case. Ends with a
	// key beyond that, and those that a restart of the hub forgets, are found again in the key index of the cluster's next complete report.
	maxEndings, endingsKept = 10_000, 100
	// endingsOfCluster bounds the calls in flight to one cluster. The calls to all clusters together have two bounds: a first send begins
	// while less than mostBegun are in flight, and a repeat while less than mostRepeated are. A cluster with less than fewEndings calls may
	// exceed these by a quarter of the background; because a few silent clusters must leave room for others (I7). The background has room for
	// all, so that none waits for it.
	endingsOfCluster, fewEndings = 128, 4
	mostBegun                    = background.MaxFollowing * 3 / 4
	mostRepeated                 = background.MaxFollowing / 2
	moreForFew                   = background.MaxFollowing / 4
)

// ending names what a cluster must end: a sandbox, or an attempt whose sandbox is not known.
type ending struct {
	cluster string
	id      string
	hash    string
	attempt int32
}

// endings holds the ends that clusters have not confirmed: a cluster was away, its API server was in trouble, or the call is in flight. The
// hub retries them; because a caller whose end was acknowledged does not retry, and the sandbox would keep running. Each cluster has its
// own bounds; because one that is away for long must leave room for others (I10).
type endings struct {
	mu       sync.Mutex
	clusters map[string]*clusterEndings
	total    int
	asked    int // calls in flight
}

type clusterEndings struct {
	waiting map[ending]bool // true: it was sent, and is not confirmed
	asked   map[ending]bool // endings with a call in flight, even if another call has confirmed them meanwhile
}

func newEndings() *endings { return &endings{clusters: map[string]*clusterEndings{}} }

// add records an ending that was sent and not confirmed. It returns false if there is no room for it.
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

// begin records an ending. now is true if its call may begin now; otherwise it waits for room. kept is false if there is no room for
// it.
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

// note records an ending, or returns nil if there is no room. Called with the lock held.
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

// room reports whether a call to a cluster may begin. It may if the cluster is within its own bound and less than most calls are in flight
// to all clusters (moreForFew more for a cluster with few). Called with the lock held.
func (e *endings) room(c *clusterEndings, most int) bool {
	if len(c.asked) < fewEndings {
		most += moreForFew
	}
	return len(c.asked) < endingsOfCluster && e.asked < most
}

// ask counts a call as in flight, until over. Called with the lock held.
func (e *endings) ask(c *clusterEndings, what ending) {
	c.asked[what] = true
	e.asked++
}

// over ends a counted call. After a success it returns the cluster's next waiting ending, and counts its call.
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

// discard removes an ending whose call was counted and is not made.
func (e *endings) discard(what ending) {
	e.remove(what)
	e.over(what, false)
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

// tidy removes a cluster without endings. Called with the lock held.
func (e *endings) tidy(cluster string, c *clusterEndings) {
	if len(c.waiting) == 0 && len(c.asked) == 0 {
		delete(e.clusters, cluster)
	}
}

// take returns endings without a call in flight, and counts their calls. It goes round robin over the clusters, in random order.
func (e *endings) take() (out []ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for before := -1; before < len(out); {
		before = len(out)
		for _, c := range e.clusters {
			most := mostRepeated
			if len(c.asked) == 0 {
				most = mostBegun // a cluster's first repeat does not wait for first sends to others
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

// settle records the result of a call that sent an end. It reports whether the end will be sent again.
func (e *endings) settle(what ending, err error) (repeated bool) {
	if confirmed(err) {
		e.remove(what)
		return false
	}
	return e.add(what)
}

func confirmed(err error) bool { return err == nil || reasonOf(err) == problem.NotFound }

// endAgain sends the ends that clusters have not confirmed, and those that wait for room.
func (s *Service) endAgain() {
	for _, what := range s.endings.take() {
		if s.fleet.Forgotten(what.cluster, "") {
			s.endings.discard(what)
			continue
		}
		s.followEnd(what)
	}
}

// followEnd sends an end whose call was counted. While the cluster confirms, it sends the next waiting ones.
func (s *Service) followEnd(what ending) {
	s.background.Follow(func() {
		for more := true; more; {
			what, more = s.endings.over(what, s.sendEnd(what))
		}
	})
}

// sendEnd sends an end and reports whether the cluster has confirmed it. It logs the first failure.
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

// endAfter sends an end in the background of the call that caused it. An end beyond the cluster's calls in flight waits for room. If
// there is no room to wait either, it is sent once.
func (s *Service) endAfter(what ending) {
	switch now, kept := s.endings.begin(what); {
	case now:
		s.followEnd(what)
	case !kept:
		s.background.Follow(func() { s.sendEnd(what) })
	}
}
