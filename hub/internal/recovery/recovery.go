// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/chanmutex"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// State knows whether the ledger is complete. All methods are safe for concurrent use. The zero value stands for an intact ledger that is
// not stored.
type State struct {
	claims, registry store.Store
	proofs           hubstate.Proofs

	recovering atomic.Bool // no claim with a key is served
	partial    atomic.Bool // some clusters may hold keys that are not in the ledger
	epoch      atomic.Int32
	id         atomic.Pointer[string]    // of the ledger
	told       atomic.Pointer[Mark]      // the last mark that Mark returned
	lostAt     atomic.Pointer[time.Time] // when the last loss was noticed

	mu       chanmutex.Mutex // held while the ledger's entry is written
	ledger   hubstate.Ledger
	revision uint64 // of its entry
	marked   uint64 // the revision that was last written to the registry

	onReplaced func()

	waiting   sync.Mutex
	marks     map[string]Mark // the highest mark of each ledger, to be compared once the store responds
	unchecked atomic.Bool     // marks is not empty
}

// Status is the reported part of a State.
type Status struct {
	Epoch      int32
	Recovering bool
	Last       *hubstate.Recovery // nil: the ledger was never lost
	Awaited    []string
}

var errTooOften = errors.New("the ledger has been lost too often: attempts cannot be numbered any more")

// maxTries bounds how often replicas that start at the same time make each other start over.
const maxTries = 100

// Open compares the two stores, and starts a recovery if necessary. Of several replicas, the first one does so.
func Open(ctx context.Context, claims, registry store.Store, now clock.PassiveClock) (s *State, err error) {
	for range maxTries {
		if s, err = open(ctx, claims, registry, now); !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	return s, err
}

func open(ctx context.Context, claims, registry store.Store, now clock.PassiveClock) (*State, error) {
	held, err := hubstate.HoldLedger(ctx, claims)
	if err != nil {
		return nil, err
	}
	found := held.Value
	known, err := hubstate.HoldIdentity(ctx, registry)
	if err != nil {
		return nil, err
	}
	s := &State{claims: claims, registry: registry, revision: held.Revision}
	remembered := s.renamed(found, known.Value)
	setBack, err := s.setBack(ctx, found)
	if err != nil {
		return nil, err
	}
	isNew := found == nil && remembered == nil
	p, cause, epoch := decidePairing(found, remembered, setBack)
	if epoch > maxEpoch {
		return nil, errTooOften
	}
	if found != nil {
		s.ledger = *found
	}
	switch p {
	case fresh:
		s.ledger = hubstate.Ledger{Identity: hubstate.Identity{ID: rand.Text()}}
	case recovers:
		former := ""
		if remembered != nil {
			former = remembered.ID
		}
		if s.ledger, err = succeed(s.ledger, cause, epoch, now.Now(), former); err != nil {
			return nil, err
		}
	case paired, registryLost:
		s.ledger.Epoch = epoch
	}
	if r := s.ledger.Recovery; r != nil && r.Epoch == 0 {
		r.Epoch = s.ledger.Epoch // an older build began it
	}
	if err := s.openProofs(ctx, isNew, now.Now()); err != nil {
		return nil, err
	}
	if p != paired {
		if s.revision, err = hubstate.SwapLedger(ctx, claims, s.revision, s.ledger); err != nil {
			return nil, err
		}
	}
	if p != paired || remembered != known.Value {
		if _, err := hubstate.SwapIdentity(ctx, registry, known.Revision, s.ledger.Identity); err != nil {
			return nil, err
		}
	}
	s.publish()
	return s, nil
}

// succeed returns the ledger that replaces a lost one. lost may be the zero value. former is another known id of the lost ledger, or "".
func succeed(lost hubstate.Ledger, cause hubstate.Cause, epoch int32, now time.Time, former string) (hubstate.Ledger, error) {
	if epoch > maxEpoch {
		return hubstate.Ledger{}, errTooOften
	}
	return hubstate.Ledger{
		Identity: hubstate.Identity{ID: rand.Text(), Epoch: epoch},
		Former:   lost.FormerOf(former),
		Recovery: &hubstate.Recovery{Cause: cause, Since: now.UTC(), Epoch: epoch},
	}, nil
}

// revised is a ledger that reports its progress.
type revised interface{ Revision() (uint64, error) }

// progress returns the ledger if the registry records its progress. That is not so for a shared store; because both stores are in one etcd,
// which is set back as a whole.
func progress(claims store.Store) (ledger revised, can bool) {
	if _, shared := claims.(store.Shared); shared {
		return nil, false
	}
	ledger, can = claims.(revised)
	return ledger, can
}

// setBack reports whether the ledger was once further than now.
func (s *State) setBack(ctx context.Context, found *hubstate.Ledger) (bool, error) {
	ledger, can := progress(s.claims)
	mark, err := hubstate.LoadMark(ctx, s.registry)
	if err != nil || !can || mark == nil || found == nil || mark.ID != found.ID {
		return false, err
	}
	revision, err := ledger.Revision()
	return revision < mark.Revision, err
}

// Run records the ledger's progress in the registry until ctx ends, and once more at the end. If a write fails, for example with a full
// disk, a later one catches up.
func (s *State) Run(ctx context.Context, c clock.WithTicker) error {
	if all, is := s.claims.(store.Shared); is {
		return s.follow(ctx, all, c)
	}
	ticker := c.NewTicker(markEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
			defer cancel()
			s.mark(last)
			return nil
		case <-ticker.C():
			s.mark(ctx)
		}
	}
}

// mark writes the ledger's progress to the registry, unless it is unchanged.
func (s *State) mark(ctx context.Context) {
	ledger, can := progress(s.claims)
	if !can {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	revision, err := ledger.Revision()
	if err != nil || revision == s.marked {
		return
	}
	if hubstate.SaveMark(ctx, s.registry, hubstate.Mark{ID: s.ledger.ID, Revision: revision}) == nil {
		s.marked = revision
	}
}

const (
	markEvery   = 30 * time.Second
	markTimeout = 5 * time.Second
)

// publish copies the ledger's state into the atomic fields. Called with mu held, or before the State is shared.
func (s *State) publish() {
	r := s.ledger.Recovery
	if r != nil {
		s.lostAt.Store(&r.Since)
	}
	s.epoch.Store(s.ledger.Epoch)
	id := s.ledger.ID
	s.id.Store(&id)
	s.partial.Store(r != nil && !r.Over)
	s.recovering.Store(r != nil && !r.Over && !r.Accepted)
}

// Recovering reports whether claims with a key must wait.
func (s *State) Recovering() bool { return s.recovering.Load() || s.unchecked.Load() }

// Epoch returns the ledger's epoch.
func (s *State) Epoch() int32 { return s.epoch.Load() }

// Whole reports whether the ledger has the keys of all clusters.
func (s *State) Whole() bool { return !s.partial.Load() }

// Unheard lists the registered clusters whose keys may be missing in the ledger. It is empty unless the ledger was lost.
func (s *State) Unheard(registered []string) []string {
	if s.Whole() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return unheard(s.ledger.Recovery, registered)
}

// LastLost returns the last attempt that an earlier ledger can have created. Once claims with a key are served, attempts of the current
// epoch belong to this ledger.
func (s *State) LastLost() int32 {
	if !s.recovering.Load() {
		return FirstAttempt(s.epoch.Load()) - 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return FirstAttempt(lastLost(s.ledger.Recovery.Epoch)+1) - 1
}

// Saw records the attempt of a Pod with a key before the ledger numbers further attempts, and raises the epoch if necessary.
func (s *State) Saw(ctx context.Context, attempt int32) error {
	if EpochOf(attempt) < s.epoch.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.update(ctx, func(next *hubstate.Ledger) (bool, error) {
		epoch := raise(next.Epoch, s.recovering.Load(), EpochOf(attempt))
		if epoch == next.Epoch {
			return false, nil
		}
		if last := lastLost(next.Recovery.Epoch); EpochOf(attempt) > last {
			return false, fmt.Errorf("attempt %d is of epoch %d, want at most %d", attempt, EpochOf(attempt), last)
		}
		if epoch > maxEpoch {
			return false, errTooOften
		}
		next.Epoch = epoch
		return true, nil
	})
}

// Heard records that every key of a cluster is in the ledger.
func (s *State) Heard(ctx context.Context, cluster string) error {
	return s.change(ctx, func(r *hubstate.Recovery) bool {
		if slices.Contains(r.Heard, cluster) {
			return false
		}
		r.Heard = append(slices.Clone(r.Heard), cluster)
		return true
	})
}

// Settle ends the recovery if it no longer waits for a registered cluster.
func (s *State) Settle(ctx context.Context, registered []string) error {
	return s.change(ctx, func(r *hubstate.Recovery) bool {
		r.Over = len(unheard(r, registered)) == 0
		return r.Over
	})
}

// Accept ends the recovery for callers, whichever clusters are missing.
func (s *State) Accept(ctx context.Context) error {
	return s.change(ctx, func(r *hubstate.Recovery) bool {
		was := r.Accepted
		r.Accepted = true
		return !was
	})
}

// change makes a change of the running recovery durable. It does nothing without a recovery.
func (s *State) change(ctx context.Context, apply func(*hubstate.Recovery) bool) error {
	if !s.partial.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.update(ctx, func(next *hubstate.Ledger) (bool, error) {
		if r := next.Recovery; r == nil || r.Over {
			return false, nil
		}
		recovery := *next.Recovery
		next.Recovery = &recovery
		return apply(&recovery), nil
	})
}

// save writes the ledger's entry. It returns store.ErrConflict if another replica has changed the entry. Called with mu held.
func (s *State) save(ctx context.Context, next hubstate.Ledger) (err error) {
	if s.claims == nil {
		s.ledger = next
		s.publish()
		return nil
	}
	if _, is := s.claims.(store.Shared); is {
		return s.swap(ctx, s.revision, next)
	}
	if next.Epoch != s.ledger.Epoch {
		// The registry first, so that it has the epoch if the ledger is lost.
		if err := hubstate.SaveIdentity(ctx, s.registry, next.Identity); err != nil {
			return err
		}
	}
	if s.revision, err = hubstate.SwapLedger(ctx, s.claims, s.revision, next); err != nil {
		return fmt.Errorf("recording the progress of the recovery: %w", err)
	}
	s.ledger = next
	s.publish()
	return nil
}

// Status returns the current state.
func (s *State) Status(registered []string) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{
		Epoch: s.ledger.Epoch, Recovering: s.recovering.Load(), Last: s.ledger.Recovery,
		Awaited: unheard(s.ledger.Recovery, registered),
	}
}
