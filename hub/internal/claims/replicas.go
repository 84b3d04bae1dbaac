// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// storePatience bounds each call of a shared store, which blocks without a quorum.
	storePatience = 3 * time.Second
	// confirmPatience bounds how long a caller waits until its sandbox is recorded.
	confirmPatience = 5 * time.Second
)

// errRecordChanged means that another replica has written the record of a flight's key. The flight continues with the new record.
var errRecordChanged = errors.New("another replica has written the record of the claim key")

// failed returns the error for a failed store call in a flight.
func (s *Service) failed(err error) error {
	if s.shared != nil && errors.Is(err, store.ErrConflict) {
		return errRecordChanged
	}
	return storeFailed(err)
}

// join records that this replica may send an attempt that another replica wrote. If no caller waits, this replica also pursues it from now
// on. Afterwards a "not sent" at the attempt's writer does not permit the claim to move: the writer's record of the next attempt conflicts.
func (k *keyed) join(ctx context.Context) error {
	s, f, r := k.service, k.flight, k.held.Record
	takes := f.wait == noWait && r.Replica != s.replica
	if s.shared == nil || r.Joined && !takes {
		return nil
	}
	next := *r
	next.Joined, next.Deadline = true, k.deadline
	if f.wait == noWait {
		next.Unwaited, next.Replica = true, s.replica
	}
	saved, err := s.ledger.Save(ctx, f.hash, k.held, &next)
	if err != nil {
		return s.failed(err)
	}
	k.held = saved
	return nil
}

// check returns errRecordChanged once another replica has written the record.
func (k *keyed) check(ctx context.Context) error {
	s := k.service
	if s.shared == nil {
		return nil
	}
	h, err := s.ledger.Load(ctx, k.flight.hash)
	switch {
	case err != nil:
		return storeFailed(err)
	case h.Revision != k.held.Revision:
		return errRecordChanged
	}
	return nil
}

// confirm makes a flight's outcome durable before it is returned; because another replica may serve the key next, and requests no second
// sandbox once the record has one.
func (k *keyed) confirm(sandbox *sandboxv1.Sandbox, failure error) (*sandboxv1.Sandbox, error) {
	s, f := k.service, k.flight
	s.close(f)
	ctx := context.WithoutCancel(f.ctx) // the store bounds each call
	until := s.clock.Now().Add(confirmPatience)
	for {
		next, extra := k.resultRecord(sandbox, failure)
		if next == nil {
			return sandbox, failure
		}
		saved, err := s.ledger.Save(ctx, f.hash, k.held, next, extra...)
		if errors.Is(err, store.ErrConflict) {
			var h ledger.Held
			if h, err = s.ledger.Load(ctx, f.hash); err == nil {
				switch got := compareGrant(h.Record, k.held.Record, sandbox.GetId()); {
				case got == stillOpen && failure == nil:
					k.held = h
					continue
				case got == unwanted && failure == nil:
					k.endUnreturned(sandbox)
				}
				return nil, errRecordChanged
			}
		}
		switch {
		case err == nil:
			k.held = saved
			return sandbox, failure
		case failure != nil: // the next call with the key asks the cluster again
			return nil, failure
		case s.clock.Now().After(until) || wallclock.Sleep(s.background.Context(), s.clock, learnPause) != nil:
			s.log.Error(err, "Could not record the sandbox of a claim, so it is not returned", "claimKey", f.hash, "sandbox", sandbox.GetId())
			return nil, storeFailed(err)
		}
	}
}

// endUnreturned ends a granted sandbox whose key has ended or has another sandbox.
func (k *keyed) endUnreturned(sandbox *sandboxv1.Sandbox) {
	s, id, cluster := k.service, sandbox.GetId(), sandbox.GetClusterId()
	if id == "" {
		return
	}
	s.log.Info("Ending a sandbox that is not its claim's any more", "cluster", cluster, "claimKey", k.flight.hash, "sandbox", id)
	s.endAfter(ending{cluster: cluster, id: id})
}

// errSilent means that the shared store does not respond.
var errSilent = fmt.Errorf("the store did not respond within %s", storePatience)

// boundedStore bounds the time of each call of a shared store. While the store does not respond, one call at a time tries it, and the
// others fail at once. Reads that may be stale have their own gate; because one member of the store can serve them, so their success says
// nothing about the quorum.
type boundedStore struct {
	store.Store
	others, stale gate
}

// gate is the state of one kind of calls.
type gate struct {
	silent, trying atomic.Bool
}

func (s *boundedStore) call(ctx context.Context, do func(ctx context.Context) error) error {
	g := &s.others
	if store.MayBeStale(ctx) {
		g = &s.stale
	}
	if g.silent.Load() {
		if !g.trying.CompareAndSwap(false, true) {
			return errSilent
		}
		defer g.trying.Store(false)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, storePatience, errSilent)
	defer cancel()
	err := do(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		g.silent.Store(true)
		return fmt.Errorf("%w: %w", errSilent, err)
	}
	if ctx.Err() == nil {
		g.silent.Store(false)
	}
	return err
}

// Get implements store.Store.
func (s *boundedStore) Get(ctx context.Context, key string) (entry store.Entry, found bool, err error) {
	err = s.call(ctx, func(ctx context.Context) (err error) {
		entry, found, err = s.Store.Get(ctx, key)
		return err
	})
	return entry, found, err
}

// Range implements store.Store.
func (s *boundedStore) Range(ctx context.Context, prefix, after string, limit int) (entries []store.Entry, err error) {
	err = s.call(ctx, func(ctx context.Context) (err error) {
		entries, err = s.Store.Range(ctx, prefix, after, limit)
		return err
	})
	return entries, err
}

// Commit implements store.Store.
func (s *boundedStore) Commit(ctx context.Context, txn store.Txn) (revision uint64, err error) {
	err = s.call(ctx, func(ctx context.Context) (err error) {
		revision, err = s.Store.Commit(ctx, txn)
		return err
	})
	return revision, err
}

// unavailable reports whether an error means that the shared store does not respond, so that work without the store may continue.
func (s *Service) unavailable(err error) bool {
	return s.shared != nil && err != nil && problem.FromError(err).Reason == problem.Unavailable
}

// leadership is the name by which replicas elect the leader of claims. The leader sweeps, and resumes the open claims of dead replicas.
const leadership = "claims"

// resumeEvery is the interval at which the leader looks for open claims.
const resumeEvery = 5 * time.Second

// lead runs the leader's work until ctx ends. Two leaders at a time only cost calls: every write is conditional.
func (s *Service) lead(ctx context.Context) {
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	sweeping.Go(func() { s.sweepAgain(ctx) })
	resume := s.clock.NewTicker(resumeEvery)
	defer resume.Stop()
	var orphans openClaims
	for {
		s.resumeLogged(ctx, &orphans)
		select {
		case <-ctx.Done():
			return
		case <-resume.C():
		}
	}
}

// openClaims are the open claims of this replica or of all others, as the last pass found them.
type openClaims struct {
	own   bool                      // of this replica: a restart or a failure of the store left them open
	since map[ledger.Open]time.Time // since when each entry has been unchanged
}

func (s *Service) resumeLogged(ctx context.Context, seen *openClaims) {
	if err := s.resumeAll(ctx, seen); err != nil && ctx.Err() == nil {
		s.log.Info("Could not look for claims without a waiting caller; it is tried again", "error", err.Error())
	}
}

// resumeAll resumes open claims that no replica pursues.
func (s *Service) resumeAll(ctx context.Context, seen *openClaims) error {
	open, err := s.ledger.Open(ctx)
	if err != nil {
		return err
	}
	now, next := s.clock.Now(), make(map[ledger.Open]time.Time, len(open))
	var errs []error
	for _, o := range open {
		if seen.own != (o.Replica == s.replica) {
			continue
		}
		since, known := seen.since[o]
		if !known {
			since = now
		}
		next[o] = since
		doubt := clockDoubt
		if seen.own && known {
			doubt = 0 // an earlier pass resumed it
		}
		if s.flights.of(o.KeyHash) == nil && (seen.own || resumes(o.Replica, now.Sub(since), s.live)) {
			errs = append(errs, s.resume(ctx, o.KeyHash, doubt))
		}
	}
	seen.since = next
	return errors.Join(errs...)
}
