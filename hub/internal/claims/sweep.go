// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

const (
	sweepEvery = 30 * time.Second
	// sweepAtOnce bounds the concurrent writes of a sweep; the store groups them.
	sweepAtOnce = 64
	// sweepPatience bounds the total time that a sweep waits for the responses of one cluster. Claims that it does not look up are due again
	// after sweepLater.
	sweepPatience, sweepLater = 10 * time.Second, 10 * time.Minute
	// clockDoubt is how long after its deadline an accepted claim is still resumed. The clock that wrote the deadline may have been ten
	// minutes off in one direction and may now be ten minutes off in the other (I11), and the hub may have been down for a while.
	clockDoubt = time.Hour
)

// Run repeats unconfirmed ends until ctx ends. Once all keys are known it also resumes the claims without a waiting caller and drops
// expired keys. With several replicas the leader does that for all.
func (s *Service) Run(ctx context.Context) error {
	again := s.clock.NewTicker(endingEvery)
	defer again.Stop()
	if !s.untilRecovered(ctx, again.C()) {
		return nil
	}
	if s.shared != nil {
		var leading sync.WaitGroup
		defer leading.Wait()
		leading.Go(func() { _ = s.shared.Lead(ctx, leadership, s.lead) }) // until ctx ends
	} else if err := s.takeUp(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("taking up open claims: %w", err)
	}
	s.count(ctx)
	ticker := s.clock.NewTicker(sweepEvery)
	defer ticker.Stop()
	own := openClaims{own: true}
	if s.shared != nil {
		s.resumeLogged(ctx, &own)
	} else {
		var sweeping sync.WaitGroup
		defer sweeping.Wait()
		sweeping.Go(func() { s.sweepAgain(ctx) })
	}
	for tick := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C():
			s.endAgain()
		case <-ticker.C():
			tick++
			if s.shared != nil {
				s.resumeLogged(ctx, &own)
			}
			if tick%countEvery == 0 {
				s.count(ctx)
			}
		}
	}
}

// untilRecovered waits until all keys are known, and returns false if ctx ends first. Meanwhile it repeats unconfirmed ends: a cancel that
// returned during a recovery is as valid as any other, and its sandbox must not keep running until the last cluster returns.
func (s *Service) untilRecovered(ctx context.Context, again <-chan time.Time) bool {
	poll := s.clock.NewTicker(recoveryPoll)
	defer poll.Stop()
	for s.recovered(ctx) != nil {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			s.endAgain()
		case <-poll.C():
		}
	}
	return true
}

// takeUp resumes the claims that an earlier process accepted without a waiting caller. Each gets its full time from now on, see until.
func (s *Service) takeUp(ctx context.Context) error {
	open, err := s.ledger.Open(ctx)
	if err != nil {
		return err
	}
	for _, o := range open {
		err := s.resume(ctx, o.KeyHash, clockDoubt)
		if errors.Is(err, ledger.ErrDamaged) {
			s.log.Error(err, "Could not resume a claim without a waiting caller", "claimKey", o.KeyHash)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// resume pursues an open claim, unless its deadline passed longer ago than doubt.
func (s *Service) resume(ctx context.Context, hash string, doubt time.Duration) error {
	h, err := s.ledger.Load(ctx, hash)
	if err != nil {
		return err
	}
	if h.Record == nil || !h.Record.Open() || s.clock.Now().Sub(h.Record.Deadline) > doubt {
		return nil
	}
	req, err := h.Record.ParseRequest()
	if err != nil {
		return err
	}
	ctx = principal.With(ctx, principal.None()) // the callers that join it later are not known
	_, _, err = s.join(ctx, hash, h.Record.Account, req, terms{wait: noWait})
	return err
}

// sweepAgain sweeps until ctx ends. It has its own goroutine, so that ends and resumed claims do not wait; because a sweep waits for
// clusters.
func (s *Service) sweepAgain(ctx context.Context) {
	ticker := s.clock.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
				s.log.Error(err, "Could not drop expired claim keys")
			}
		}
	}
}

// sweep drops all expired entries, oldest first. Entries that cannot be read stay.
func (s *Service) sweep(ctx context.Context) error {
	now, clusters := s.clock.Now(), map[string]*asked{}
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(sweepAtOnce)
	var failure, unreadable error
	for due, err := range s.ledger.Due(ctx) {
		if err == nil && due.At.After(now) {
			break
		}
		var write func() error
		if err == nil {
			write, err = s.expire(ctx, due, now, clusters)
		}
		if errors.Is(err, ledger.ErrDamaged) {
			unreadable = err
			continue
		}
		if err != nil {
			failure = err
			break
		}
		writes.Go(func() error {
			if err := write(); !errors.Is(err, store.ErrConflict) {
				return err
			}
			return nil
		})
	}
	if unreadable != nil { // one line for all; because each sweep finds them again
		s.log.Error(unreadable, "Could not check all that has expired, because it is damaged")
	}
	return errors.Join(writes.Wait(), failure)
}

// expire returns the write for an entry that is due. It drops an ended claim. It drops a claim that never ended only if its cluster holds
// nothing for it. Otherwise the claim is due again after another retention, or soon if the cluster was not asked.
func (s *Service) expire(ctx context.Context, due ledger.Due, now time.Time, clusters map[string]*asked) (write func() error, err error) {
	hash := due.KeyHash
	if hash == "" {
		return func() error { return s.ledger.DropDue(ctx, due) }, nil
	}
	h, err := s.ledger.Load(ctx, hash)
	if err != nil {
		return nil, err
	}
	if !due.Of(h.Record) {
		return func() error { return s.ledger.DropDue(ctx, due) }, nil
	}
	again := s.retention
	gone := h.Record.State == ledger.Ended || h.Record.State == ledger.Refused || s.fleet.Forgotten(h.Record.Cluster, h.Record.ClusterUID)
	if !gone {
		c := clusters[h.Record.Cluster]
		if c == nil {
			c = &asked{left: sweepPatience}
			clusters[h.Record.Cluster] = c
		}
		if c.left <= 0 && !c.failed {
			again = min(again, sweepLater)
		}
		gone = s.holdsNothing(ctx, hash, h.Record, c)
	}
	if gone {
		return func() error {
			if err := s.ledger.Drop(ctx, hash, h); err != nil {
				return err
			}
			s.metrics.swept.Inc()
			return nil
		}, nil
	}
	next := *h.Record
	next.ExpireAt = now.Add(again)
	return func() error {
		_, err := s.ledger.Save(ctx, hash, h, &next)
		return err
	}, nil
}

// asked is the time that a sweep may still wait for a cluster's responses, and whether a request has failed.
type asked struct {
	left   time.Duration
	failed bool
}

// holdsNothing reports whether a claim's cluster says that it holds nothing for the claim. Within one sweep, a cluster is not asked again
// after it failed to respond, or after a total of sweepPatience.
func (s *Service) holdsNothing(ctx context.Context, hash string, r *ledger.Record, c *asked) bool {
	if c.left <= 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, c.left)
	defer cancel()
	began := s.clock.Now()
	_, err := s.lookup(ctx, hash, r)
	c.left -= s.clock.Since(began)
	if err != nil && reasonOf(err) != problem.NotFound {
		c.left, c.failed = 0, true
	}
	return err != nil && !c.failed
}

// countEvery is the number of sweeps between two counts of the records.
const countEvery = 10

// count updates the metrics of how many records each state has.
func (s *Service) count(ctx context.Context) {
	counts, err := s.ledger.Count(ctx)
	if err != nil {
		s.log.Info("Could not count claims", "error", err.Error())
		return
	}
	for state, n := range counts {
		s.metrics.records.WithLabelValues(string(state)).Set(float64(n))
	}
}
