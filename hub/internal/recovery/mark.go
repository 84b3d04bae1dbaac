// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// Mark is how far the ledger has come, as workers remember it: they outlive both files of the hub.
type Mark struct {
	hubstate.Mark
	Proof string // the hub's MAC over id and revision; because a cluster could invent a mark (I15)
	// CommitsProof is its MAC over all; because hubs and workers of before know no number of commits.
	CommitsProof string
}

// remembered is what a worker's mark says about this ledger.
type remembered string

const (
	isFine   remembered = "Fine"   // this ledger has come as far, or replaced that one knowingly
	isBehind remembered = "Behind" // this ledger was once further
	isOther  remembered = "Other"  // a later ledger of this hub was lost
	isAlien  remembered = "Alien"  // not given with a secret of this hub: both files were lost, or it is made up
)

// decideMark is pure. own is the present ledger; at is how far it has come, as read after the mark arrived. The number of commits shows an
// etcd that was restored with --bump-revision, which raises its revision beyond any mark.
func decideMark(own hubstate.Ledger, at store.Position, m hubstate.Mark, proof Verdict) remembered {
	switch {
	case proof != Proven:
		return isAlien
	case own.Moved != nil && m.ID == own.Moved.ID && m.Revision > own.Moved.Revision:
		return isBehind // a hub went on where this ledger was copied from
	case m.ID == own.ID && m.Revision <= at.Revision && m.Commits <= at.Commits, slices.Contains(own.Former, m.ID):
		return isFine
	case m.ID == own.ID:
		return isBehind
	default:
		return isOther
	}
}

func markUnder(secret hubstate.ProofSecret, m hubstate.Mark) string {
	return macUnder(secret, "atoll ledger", m.ID, strconv.FormatUint(m.Revision, 10))
}

func commitsUnder(secret hubstate.ProofSecret, m hubstate.Mark) string {
	return macUnder(secret, "atoll ledger commits", m.ID, strconv.FormatUint(m.Revision, 10), strconv.FormatUint(m.Commits, 10))
}

// checkedCommits is the mark without a number of commits that is not proven.
func (s *State) checkedCommits(m Mark) Mark {
	if s.verifyMAC(m.CommitsProof, func(secret hubstate.ProofSecret) string { return commitsUnder(secret, m.Mark) }) != Proven {
		m.Commits = 0
	}
	return m
}

func (s *State) verifyMark(m Mark) Verdict {
	return s.verifyMAC(m.Proof, func(secret hubstate.ProofSecret) string { return markUnder(secret, m.Mark) })
}

// shared is the ledger of several replicas.
type shared interface {
	// Committed is how far it had come with this process's last commit; zero if it made none.
	Committed() store.Position
	// Reached is how far it has come now.
	Reached(ctx context.Context) (store.Position, error)
}

// committed returns what the ledger has durably reached, and false if it has nothing.
func (s *State) committed() (store.Position, bool) {
	switch ledger := s.claims.(type) {
	case shared:
		at := ledger.Committed()
		return at, at.Revision > 0
	case revised:
		at, err := ledger.Revision()
		return store.Position{Revision: at}, err == nil
	default:
		return store.Position{}, false
	}
}

// reached returns how far the ledger has come, at least as of the call.
func (s *State) reached(ctx context.Context) (at store.Position, can bool, err error) {
	switch ledger := s.claims.(type) {
	case shared:
		at, err = ledger.Reached(ctx)
	case revised:
		at.Revision, err = ledger.Revision()
	default:
		return store.Position{}, false, nil
	}
	return at, true, err
}

// Mark returns how far the ledger has come; false if it cannot tell.
func (s *State) Mark() (Mark, bool) {
	at, ok := s.committed()
	id := s.id.Load()
	if !ok || id == nil || at.Revision == 0 || len(s.proofs.Secrets) == 0 {
		return Mark{}, false
	}
	m := hubstate.Mark{ID: *id, Revision: at.Revision, Commits: at.Commits}
	if told := s.told.Load(); told != nil && told.Mark == m { // claims without a key write nothing
		return *told, true
	}
	next := Mark{Mark: m, Proof: markUnder(s.proofs.Secrets[0], m)}
	if m.Commits > 0 {
		next.CommitsProof = commitsUnder(s.proofs.Secrets[0], m)
	}
	s.told.Store(&next)
	return next, true
}

// Proto is the mark as it travels.
func (m Mark) Proto() *federationv1.LedgerMark {
	return &federationv1.LedgerMark{Id: m.ID, Revision: m.Revision, Proof: m.Proof, Commits: m.Commits, CommitsProof: m.CommitsProof}
}

// Remembered takes the mark of a worker that attaches. If the ledger was set back, with whatever else was set back with it, it begins a
// recovery and returns why. A mark that only a hub with other secrets can have given changes nothing; because any cluster could
// invent it. While the store does not respond the mark is kept, and claims with a key wait until it is compared; because streams must begin
// without the store.
func (s *State) Remembered(ctx context.Context, m Mark, now time.Time) (got Verdict, because hubstate.Cause, err error) {
	got, m = s.verifyMark(m), s.checkedCommits(m)
	because, err = s.compare(ctx, m, got, now)
	if got == Proven && errors.Is(err, store.ErrUnavailable) {
		s.later(m)
		return got, "", nil
	}
	return got, because, err
}

// compare begins a recovery if a mark says that the ledger was set back, and returns why.
func (s *State) compare(ctx context.Context, m Mark, proof Verdict, now time.Time) (because hubstate.Cause, err error) {
	at, can, err := s.reached(ctx)
	if err != nil || !can {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.update(ctx, func(next *hubstate.Ledger) (bool, error) {
		switch decideMark(*next, at, m.Mark, proof) {
		case isBehind:
			because = hubstate.LedgerSetBack
		case isOther:
			because = hubstate.LedgerReplaced
		default:
			because = ""
			return false, nil
		}
		*next, err = succeed(*next, because, next.Epoch+1, now, m.ID)
		return true, err
	})
	return because, err
}
