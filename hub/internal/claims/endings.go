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
	// maxEndings bounds what is remembered, endingsKept what each cluster has room for whatever others take. Ends with a key beyond that, and
	// those that a restart of the hub forgets, are found again in the key index of the cluster's next complete report.
	maxEndings, endingsKept = 10_000, 100
	// endingsOfCluster bounds the calls in flight to one cluster, endingsAtOnce those to all: half of what the background has room for.
	endingsOfCluster = 128
	endingsAtOnce    = 512
)

// ending is what a cluster has to end: a sandbox, or an attempt whose sandbox is not known.
type ending struct {
	cluster string
	id      string
	hash    string
	attempt int32
}

// endings are the ends that a cluster has not confirmed: it was away, or its API server was in trouble. They are retried here;
// because a caller whose end was acknowledged does not retry, and the sandbox would run on. Each cluster has its own bounds; because
// one that is away for long must leave room for others (I10).
type endings struct {
	mu       sync.Mutex
	clusters map[string]*clusterEndings
	total    int
}

type clusterEndings struct {
	waiting map[ending]bool // true: a call is in flight
	asked   int             // calls in flight
}

func newEndings() *endings { return &endings{clusters: map[string]*clusterEndings{}} }

// add reports whether there is room for it.
func (e *endings) add(what ending) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clusters[what.cluster]
	if c == nil {
		c = &clusterEndings{waiting: map[ending]bool{}}
		e.clusters[what.cluster] = c
	}
	asked, known := c.waiting[what]
	if !known && len(c.waiting) >= endingsKept && e.total >= maxEndings {
		return false
	}
	if !known {
		e.total++
	}
	if asked {
		c.asked--
	}
	c.waiting[what] = false
	return true
}

func (e *endings) remove(what ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clusters[what.cluster]
	if c == nil {
		return
	}
	asked, known := c.waiting[what]
	if asked {
		c.asked--
	}
	if known {
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
	room := endingsAtOnce
	for _, c := range e.clusters {
		room -= c.asked
	}
	for before := -1; before < len(out); {
		before = len(out)
		for _, c := range e.clusters {
			if len(out) >= room {
				return out
			}
			if what, ok := c.next(); ok {
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
			c.waiting[what] = true
			c.asked++
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
