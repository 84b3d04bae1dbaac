// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/chanmutex"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// State is how complete the ledger is. All methods are safe for concurrent use. The zero value is an intact ledger that is not
// stored.
type State struct {
	claims, registry store.Store
	proofs           hubstate.Proofs

	recovering atomic.Bool // no claim with a key is served
	partial    atomic.Bool // some clusters may hold keys that are not in the ledger
	epoch      atomic.Int32
	lostAt     atomic.Pointer[time.Time] // when the last loss was noticed

	mu     chanmutex.Mutex // held while the ledger's entry is written
	ledger hubstate.Ledger
	marked uint64 // what the registry last got
}

// Status is the reported part of a State.
type Status struct {
	Epoch      int32
	Recovering bool
	Last       *hubstate.Recovery // nil: the ledger was never lost
	Awaited    []string
}

var errTooOften = errors.New("the ledger has been lost too often: attempts cannot be numbered any more")

// Open compares the two files, and begins a recovery if they require one.
func Open(ctx context.Context, claims, registry store.Store, now clock.PassiveClock) (*State, error) {
	found, err := hubstate.LoadLedger(ctx, claims)
	if err != nil {
		return nil, err
	}
	remembered, err := hubstate.LoadIdentity(ctx, registry)
	if err != nil {
		return nil, err
	}
	s := &State{claims: claims, registry: registry}
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
		s.ledger = hubstate.Ledger{
			Identity: hubstate.Identity{ID: rand.Text(), Epoch: epoch},
			Recovery: &hubstate.Recovery{Cause: cause, Since: now.Now().UTC(), Epoch: epoch},
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
		if err := hubstate.SaveLedger(ctx, claims, s.ledger); err != nil {
			return nil, err
		}
		if err := hubstate.SaveIdentity(ctx, registry, s.ledger.Identity); err != nil {
			return nil, err
		}
	}
	s.publish()
	return s, nil
}

// revised is a ledger that reports its progress.
type revised interface{ Revision() (uint64, error) }

// setBack reports whether the ledger was once further than it is.
func (s *State) setBack(ctx context.Context, found *hubstate.Ledger) (bool, error) {
	ledger, can := s.claims.(revised)
	mark, err := hubstate.LoadMark(ctx, s.registry)
	if err != nil || !can || mark == nil || found == nil || mark.ID != found.ID {
		return false, err
	}
	revision, err := ledger.Revision()
	return revision < mark.Revision, err
}

// Run records the ledger's progress in the registry, until ctx ends and once more then. A mark that could not be written, as with
// a full disk, is only late.
func (s *State) Run(ctx context.Context, c clock.WithTicker) error {
	ticker := c.NewTicker(markEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
			defer cancel()
			_ = s.mark(last)
			return nil
		case <-ticker.C():
			_ = s.mark(ctx)
		}
	}
}

// mark writes nothing if the ledger has not changed since.
func (s *State) mark(ctx context.Context) error {
	ledger, can := s.claims.(revised)
	if !can {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	revision, err := ledger.Revision()
	if err != nil || revision == s.marked {
		return err
	}
	if err := hubstate.SaveMark(ctx, s.registry, hubstate.Mark{ID: s.ledger.ID, Revision: revision}); err != nil {
		return err
	}
	s.marked = revision
	return nil
}

const (
	markEvery   = 30 * time.Second
	markTimeout = 5 * time.Second
)

// publish is called with mu held, or before the State is shared.
func (s *State) publish() {
	r := s.ledger.Recovery
	if r != nil {
		s.lostAt.Store(&r.Since)
	}
	s.epoch.Store(s.ledger.Epoch)
	s.partial.Store(r != nil && !r.Over)
	s.recovering.Store(r != nil && !r.Over && !r.Accepted)
}

// Recovering reports whether claims with a key must wait.
func (s *State) Recovering() bool { return s.recovering.Load() }

// Epoch returns the ledger's epoch.
func (s *State) Epoch() int32 { return s.epoch.Load() }

// Unheard lists the registered clusters whose keys may be missing in the ledger: none, unless it was lost.
func (s *State) Unheard(registered []string) []string {
	if !s.partial.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return unheard(s.ledger.Recovery, registered)
}

// LastLost returns the last attempt that an earlier ledger can have created. Once claims with a key are served, attempts of the
// current epoch are this ledger's.
func (s *State) LastLost() int32 {
	if !s.recovering.Load() {
		return FirstAttempt(s.epoch.Load()) - 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return FirstAttempt(lastLost(s.ledger.Recovery.Epoch)+1) - 1
}

// Saw notes the attempt of a Pod that carries a key, before the ledger numbers attempts next to it.
func (s *State) Saw(ctx context.Context, attempt int32) error {
	if EpochOf(attempt) < s.epoch.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := raise(s.ledger.Epoch, s.recovering.Load(), EpochOf(attempt))
	if epoch == s.ledger.Epoch {
		return nil
	}
	if last := lastLost(s.ledger.Recovery.Epoch); EpochOf(attempt) > last {
		return fmt.Errorf("attempt %d is of epoch %d, want at most %d", attempt, EpochOf(attempt), last)
	}
	if epoch > maxEpoch {
		return errTooOften
	}
	next := s.ledger
	next.Epoch = epoch
	return s.save(ctx, next)
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

// Settle ends a recovery that no longer waits for a registered cluster.
func (s *State) Settle(ctx context.Context, registered []string) error {
	return s.change(ctx, func(r *hubstate.Recovery) bool {
		r.Over = len(unheard(r, registered)) == 0
		return r.Over
	})
}

// Accept ends a recovery for waiting callers, whichever clusters are missing.
func (s *State) Accept(ctx context.Context) error {
	return s.change(ctx, func(r *hubstate.Recovery) bool {
		was := r.Accepted
		r.Accepted = true
		return !was
	})
}

// change makes a change of the running recovery durable, if there is one.
func (s *State) change(ctx context.Context, apply func(*hubstate.Recovery) bool) error {
	if !s.partial.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.ledger.Recovery; r == nil || r.Over {
		return nil
	}
	next, recovery := s.ledger, *s.ledger.Recovery
	next.Recovery = &recovery
	if !apply(&recovery) {
		return nil
	}
	return s.save(ctx, next)
}

// save is called with mu held.
func (s *State) save(ctx context.Context, next hubstate.Ledger) error {
	if s.claims == nil {
		s.ledger = next
		s.publish()
		return nil
	}
	if next.Epoch != s.ledger.Epoch {
		// The registry first; because it has the epoch if the ledger is lost.
		if err := hubstate.SaveIdentity(ctx, s.registry, next.Identity); err != nil {
			return err
		}
	}
	if err := hubstate.SaveLedger(ctx, s.claims, next); err != nil {
		return fmt.Errorf("writing down how far the recovery is: %w", err)
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
