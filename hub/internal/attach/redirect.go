// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"maps"
	"slices"
	"time"

	"navix.sh/atoll/pkg/wallclock"
)

const (
	balanceEvery = 10 * time.Second
	// balanceAgain is how long a cluster that was redirected is not asked again if it returns, for example through a load balancer.
	balanceAgain = 10 * time.Minute
)

// Attached lists the clusters that have a stream here, in order.
func (s *Server) Attached() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.conns))
}

// Redirect asks the workers of at most n clusters to attach to another replica, and returns the clusters. It asks each stream only once,
// even if the worker stays, as an older one does. Calls continue until the worker ends its stream.
func (s *Server) Redirect(n int, reason string) (asked []string) {
	return s.redirect(n, reason, func(string) bool { return true })
}

func (s *Server) redirect(n int, reason string, may func(cluster string) bool) (asked []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, c := range s.conns { // in random order, so that no cluster is asked more often than others
		if len(asked) >= n {
			break
		}
		if may(id) && c.redirected.CompareAndSwap(false, true) {
			c.redirects <- reason // holds one
			asked = append(asked, id)
		}
	}
	slices.Sort(asked)
	return asked
}

// excess returns how many of a replica's clusters should move to others, given the numbers of clusters that the others have. It is 0 up to
// the fair share plus a tenth (at least one); above that, it is what exceeds the fair share, at most a twentieth of the share (at least
// one) at a time.
func excess(mine int, others []int) int {
	total := mine
	for _, n := range others {
		total += n
	}
	fair := (total + len(others)) / (len(others) + 1)
	slack := max(1, fair/10)
	if len(others) == 0 || mine <= fair+slack {
		return 0
	}
	return min(mine-fair, max(1, fair/20))
}

// Balance redirects clusters, few at a time, while this replica has more than its share, until ctx ends. others returns the number of
// clusters of each connected replica.
func (s *Server) Balance(ctx context.Context, others func() []int) {
	left := map[string]time.Time{}
	for wallclock.Sleep(ctx, s.opts.Clock, balanceEvery) == nil {
		now := s.opts.Clock.Now()
		maps.DeleteFunc(left, func(_ string, at time.Time) bool { return now.Sub(at) >= balanceAgain })
		n := excess(len(s.Attached()), others())
		if n == 0 {
			continue
		}
		asked := s.redirect(n, "the replica has more than its share of clusters", func(cluster string) bool {
			_, recently := left[cluster]
			return !recently
		})
		for _, cluster := range asked {
			left[cluster] = now
		}
		if len(asked) > 0 {
			s.opts.Log.Info("sending clusters to other replicas", "clusters", asked)
		}
	}
}

// RedirectAll redirects all workers to other replicas, and waits until they have left. most bounds the wait.
func (s *Server) RedirectAll(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for len(s.Attached()) > 0 {
		s.Redirect(len(s.Attached()), "the replica stops")
		if wallclock.Sleep(ctx, s.opts.Clock, redirectPause) != nil {
			return
		}
	}
}

const redirectPause = 20 * time.Millisecond
