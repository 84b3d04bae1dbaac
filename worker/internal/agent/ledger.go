// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

const (
	ledgerKey  = "ledger"         // of stateConfigMap
	commitsKey = "ledger-commits" // a key of its own, because earlier releases read exactly three fields
	// keepLedgerEvery is how often the mark of the hub's ledger is stored if it has changed. A successor may read an older mark, which still
	// detects a ledger that was set back further.
	keepLedgerEvery = 5 * time.Minute
	maxLedgerText   = 512
)

// remember keeps a mark of the hub's ledger if it is the latest, or of a new ledger. It ignores a mark with a higher revision and fewer
// commits, because the store of that hub was set back.
func (a *Agent) remember(mark *federationv1.LedgerMark) {
	for mark != nil {
		known := a.ledger.Load()
		if known.GetId() == mark.GetId() && (known.GetRevision() >= mark.GetRevision() ||
			known.GetCommits() > mark.GetCommits()) || a.ledger.CompareAndSwap(known, mark) {
			return
		}
	}
}

// keepLedger stores the mark periodically until ctx ends. A failed write is repeated the next time.
func (a *Agent) keepLedger(ctx context.Context) error {
	ticker := a.opts.Clock.NewTicker(keepLedgerEvery)
	defer ticker.Stop()
	stored := a.ledger.Load()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		mark := a.ledger.Load()
		if mark == stored {
			continue
		}
		if err := a.store.keepLedger(ctx, mark); err != nil {
			a.opts.Log.Info("Could not store the revision of the hub's ledger, will try again", "error", err.Error())
			continue
		}
		stored = mark
	}
}

func (s incarnations) keepLedger(ctx context.Context, mark *federationv1.LedgerMark) error {
	err := s.change(ctx, func(data map[string]string) {
		data[ledgerKey], data[commitsKey] = formatLedger(mark), formatCommits(mark)
	})
	if err != nil {
		return fmt.Errorf("storing the mark of the hub's ledger: %w", err)
	}
	return nil
}

// loadLedger returns the stored mark, or nil if there is no readable one.
func (s incarnations) loadLedger(ctx context.Context) (*federationv1.LedgerMark, error) {
	state, err := s.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the mark of the hub's ledger: %w", err)
	}
	return withCommits(parseLedger(state.Data[ledgerKey]), state.Data[commitsKey]), nil
}

// withCommits adds the stored number of commits if it is readable. The hub drops a number that belongs to another mark.
func withCommits(mark *federationv1.LedgerMark, text string) *federationv1.LedgerMark {
	fields := strings.Fields(text)
	if mark == nil || len(fields) != 2 || len(text) > maxLedgerText {
		return mark
	}
	commits, err := strconv.ParseUint(fields[0], 10, 64)
	if err == nil {
		mark.Commits, mark.CommitsProof = commits, fields[1]
	}
	return mark
}

func formatLedger(mark *federationv1.LedgerMark) string {
	return mark.GetId() + " " + strconv.FormatUint(mark.GetRevision(), 10) + " " + mark.GetProof()
}

func formatCommits(mark *federationv1.LedgerMark) string {
	return strconv.FormatUint(mark.GetCommits(), 10) + " " + mark.GetCommitsProof()
}

func parseLedger(text string) *federationv1.LedgerMark {
	fields := strings.Fields(text)
	if len(fields) != 3 || len(text) > maxLedgerText {
		return nil
	}
	revision, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return nil
	}
	return &federationv1.LedgerMark{Id: fields[0], Revision: revision, Proof: fields[2]}
}
