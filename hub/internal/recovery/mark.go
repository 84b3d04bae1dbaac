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

// Mark is the progress of the ledger as workers remember it. Workers outlive both files of the hub.
type Mark struct {
	hubstate.Mark
	Proof string // the hub's MAC over id and revision; because a cluster could invent a mark (I15)
	// CommitsProof is the hub's MAC over the mark including the number of commits. It is separate; because earlier hubs and workers do not
	// know that number.
	CommitsProof string
}

// markRelation is the relation of a worker's mark to this ledger.
type markRelation string

const (
	isFine   markRelation = "Fine"   // this ledger has advanced as far, or is a known replacement of the mark's ledger
	isBehind markRelation = "Behind" // this ledger was once further
	isOther  markRelation = "Other"  // a later ledger of this hub was lost
	isAlien  markRelation = "Alien"  // no secret of this hub made it: both files were lost, or it is made up
)

// decideMark compares a mark with the ledger (pure). own is the current ledger. at is its progress, read after the mark arrived. The number
// of commits reveals an etcd that was restored with --bump-revision, which raises its revision beyond any mark.
func decideMark(own hubstate.Ledger, at store.Position, m hubstate.Mark, proof Verdict) markRelation {
	switch {
	case proof != Proven:
		return isAlien
	case own.Moved != nil && m.ID == own.Moved.ID && m.Revision > own.Moved.Revision:
		return isBehind // another hub continued the ledger from which this one was copied
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

// checkedCommits returns the mark, without its number of commits if that is not proven.
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
	// Committed returns the ledger's progress at this process's last commit, or zero if it made none.
	Committed() store.Position
	// Reached returns the ledger's current progress.
	Reached(ctx context.Context) (store.Position, error)
}

// committed returns the progress that is durable, and false if there is none.
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

// reached returns the ledger's progress, at least as of the call.
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

// Mark returns the mark of the ledger's progress, and false if that is not known.
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

// Proto returns the mark as a message.
func (m Mark) Proto() *federationv1.LedgerMark {
	return &federationv1.LedgerMark{Id: m.ID, Revision: m.Revision, Proof: m.Proof, Commits: m.Commits, CommitsProof: m.CommitsProof}
}

// Remembered compares the mark of a worker that attaches. If the mark shows that the ledger was set back, whatever else was set back with
// it, Remembered starts a recovery and returns its cause. A mark that no secret of this hub made changes nothing; because any cluster could
// invent it. While the store does not respond, the mark is kept, and claims with a key wait until it is compared; because streams must
// begin without the store.
func (s *State) Remembered(ctx context.Context, m Mark, now time.Time) (got Verdict, because hubstate.Cause, err error) {
	got, m = s.verifyMark(m), s.checkedCommits(m)
	because, err = s.compare(ctx, m, got, now)
	if got == Proven && errors.Is(err, store.ErrUnavailable) {
		s.later(m)
		return got, "", nil
	}
	return got, because, err
}

// compare starts a recovery if a mark shows that the ledger was set back, and returns the cause.
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
