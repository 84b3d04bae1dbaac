// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/hubstate"
)

// Marks implements attach.Ledger: it provides the marks of the ledger, and compares those that workers remember.
type Marks struct {
	State *State
	Clock clock.PassiveClock
	Log   logr.Logger
}

// Mark returns the current mark, or nil if there is none.
func (m Marks) Mark() *federationv1.LedgerMark {
	mark, ok := m.State.Mark()
	if !ok {
		return nil
	}
	return mark.Proto()
}

const (
	maxMarkID    = 64
	maxMarkProof = 128
)

// Remembered compares a cluster's mark, which is nil if it has none. It returns true if claim keys were lost: all streams must then begin
// again.
func (m Marks) Remembered(ctx context.Context, cluster string, mark *federationv1.LedgerMark) (lost bool, err error) {
	if mark == nil {
		return false, nil
	}
	if proof := max(len(mark.GetProof()), len(mark.GetCommitsProof())); len(mark.GetId()) > maxMarkID || proof > maxMarkProof {
		return false, fmt.Errorf("the ledger's mark has an id of %d bytes and a proof of %d, want at most %d and %d",
			len(mark.GetId()), proof, maxMarkID, maxMarkProof)
	}
	got, because, err := m.State.Remembered(ctx, Mark{
		hubstate.Mark{ID: mark.GetId(), Revision: mark.GetRevision(), Commits: mark.GetCommits()}, mark.GetProof(), mark.GetCommitsProof(),
	}, m.Clock.Now())
	switch {
	case err != nil:
		return false, err
	case because != "":
		m.Log.Info("The store was set back: claims with a key wait for the key indexes of all clusters", "reason", because,
			"rememberedBy", cluster)
	case got != Proven:
		m.Log.Info("A cluster remembers a ledger of a hub with other secrets: if this hub lost all of its files, claim keys of before are "+
			"not known", "cluster", cluster, "verdict", got)
	}
	return because != "", nil
}
