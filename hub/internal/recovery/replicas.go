// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// followPause is the pause between two attempts to follow the ledger's entry.
const followPause = time.Second

// renamed returns the registry's entry, or the ledger's own identity if a replica that replaced the ledger ended before it wrote the
// registry. With one replica the registry is written first.
func (s *State) renamed(found *hubstate.Ledger, registry *hubstate.Identity) *hubstate.Identity {
	_, is := s.claims.(store.Shared)
	if is && found != nil && registry != nil && slices.Contains(found.Former, registry.ID) {
		return &found.Identity
	}
	return registry
}

// update applies decide to the ledger's entry. If another replica has changed the entry, it reads that and decides again. Called with mu
// held.
func (s *State) update(ctx context.Context, decide func(next *hubstate.Ledger) (change bool, err error)) error {
	for {
		next := s.ledger
		if change, err := decide(&next); err != nil || !change {
			return err
		}
		err := s.save(ctx, next)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if err := s.reload(ctx); err != nil {
			return err
		}
	}
}

// swap writes the ledger's entry, then the registry's: both are lost together, and the ledger names those that it replaced.
func (s *State) swap(ctx context.Context, revision uint64, next hubstate.Ledger) error {
	revision, err := hubstate.SwapLedger(ctx, s.claims, revision, next)
	if err != nil {
		return err
	}
	renamed := next.Identity != s.ledger.Identity
	s.ledger, s.revision = next, revision
	s.publish()
	if !renamed {
		return nil
	}
	for {
		known, err := hubstate.HoldIdentity(ctx, s.registry)
		if err != nil {
			return err
		}
		held, err := hubstate.HoldLedger(ctx, s.claims) // read second, so that the replica with the last ledger writes last
		if err != nil || held.Value == nil || known.Value != nil && *known.Value == held.Value.Identity {
			return err
		}
		if _, err := hubstate.SwapIdentity(ctx, s.registry, known.Revision, held.Value.Identity); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// reload reads the ledger's entry from the store. Called with mu held.
func (s *State) reload(ctx context.Context) error {
	held, err := hubstate.HoldLedger(ctx, s.claims)
	if err != nil {
		return err
	}
	if held.Value == nil {
		return errVanished
	}
	s.ledger, s.revision = *held.Value, held.Revision
	s.publish()
	return nil
}

// errVanished reports that the ledger's entry was removed while replicas run.
var errVanished = errors.New("the ledger's entry is gone")

// follow applies the ledger's entry when other replicas write it, until ctx ends.
func (s *State) follow(ctx context.Context, ledger store.Shared, c clock.WithTicker) error {
	take := func(ctx context.Context) error {
		replaced, err := s.take(ctx, c.Now())
		if replaced && s.onReplaced != nil {
			s.onReplaced()
		}
		return err
	}
	var checks sync.WaitGroup
	defer checks.Wait()
	checks.Go(func() { s.checkMarks(ctx, c) })
	for ctx.Err() == nil {
		watching, again := context.WithCancel(ctx)
		err := store.Follow(watching, ledger, hubstate.LedgerKey, take, func(events []store.Event) {
			if last := events[len(events)-1]; last.Revision != s.seen() && take(ctx) != nil {
				again()
			}
		})
		again()
		if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
			break
		}
		select {
		case <-ctx.Done():
		case <-c.After(followPause):
		}
	}
	return nil
}

// take reads the ledger's entry, and reports whether it belongs to another ledger now.
func (s *State) take(ctx context.Context, now time.Time) (replaced bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.ledger.ID
	if err = s.reload(ctx); errors.Is(err, errVanished) {
		err = s.replace(ctx, now)
	}
	return s.ledger.ID != before, err
}

// OnReplaced sets the function that is called when another replica, or the loss of the entry while replicas run, has replaced the ledger:
// clusters must send their key indexes again. Call it before Run.
func (s *State) OnReplaced(f func()) { s.onReplaced = f }

func (s *State) seen() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// replace starts a recovery; because the keys are lost with the ledger's entry. Called with mu held.
func (s *State) replace(ctx context.Context, now time.Time) error {
	next, err := succeed(s.ledger, hubstate.LedgerLost, s.ledger.Epoch+1, now, "")
	if err != nil {
		return err
	}
	if err := s.swap(ctx, 0, next); !errors.Is(err, store.ErrConflict) {
		return err
	}
	return s.reload(ctx) // another replica was first
}

// later keeps a mark until the store responds. The marks are proven, so they belong to ledgers of this hub, which are few.
func (s *State) later(m Mark) {
	s.waiting.Lock()
	defer s.waiting.Unlock()
	if s.marks == nil {
		s.marks = map[string]Mark{}
	}
	known := s.marks[m.ID] // keep the furthest of the proven values
	m.Revision, m.Commits = max(m.Revision, known.Revision), max(m.Commits, known.Commits)
	s.marks[m.ID] = m
	s.unchecked.Store(true)
}

// checkMarks compares the marks that were kept, until ctx ends.
func (s *State) checkMarks(ctx context.Context, c clock.WithTicker) {
	ticker := c.NewTicker(followPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if !s.unchecked.Load() {
			continue
		}
		s.waiting.Lock()
		marks := maps.Clone(s.marks)
		s.waiting.Unlock()
		for _, m := range marks {
			because, err := s.compare(ctx, m, Proven, c.Now())
			if err != nil {
				break // the next round tries again
			}
			if because != "" && s.onReplaced != nil {
				s.onReplaced()
			}
			s.checked(m)
		}
	}
}

// checked removes a mark that was compared.
func (s *State) checked(m Mark) {
	s.waiting.Lock()
	defer s.waiting.Unlock()
	if s.marks[m.ID] == m {
		delete(s.marks, m.ID)
	}
	s.unchecked.Store(len(s.marks) > 0)
}
