// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"

	"navix.sh/atoll/pkg/store"
)

const countPage = 500

// Count counts the records of each state, and the usage of each account. It reads all records, so that neither count drifts.
func (l *Ledger) Count(ctx context.Context) (map[State]int, error) {
	held := map[string]Usage{}
	counts := map[State]int{Pending: 0, Returned: 0, Refused: 0, Ended: 0, Unproven: 0, Damaged: 0}
	for entry, err := range store.All(ctx, l.store, ClaimPrefix, countPage) {
		if err != nil {
			return nil, fmt.Errorf("reading claims: %w", err)
		}
		state, account := summarize(entry)
		counts[state]++
		held[account] = held[account].plus(1, len(entry.Value))
	}
	l.accounts.set(held)
	return counts, nil
}

// Damaged is the state under which unreadable records are counted. The hub never writes it.
const Damaged State = "damaged"

func summarize(entry store.Entry) (state State, account string) {
	var r struct {
		State   State  `json:"state"`
		Account string `json:"account"`
	}
	if err := json.Unmarshal(entry.Value, &r); err != nil {
		return Damaged, ""
	}
	switch r.State {
	case Pending, Returned, Refused, Ended, Unproven:
		return r.State, r.Account
	default:
		return Damaged, r.Account
	}
}
