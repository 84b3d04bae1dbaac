// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"fmt"

	"navix.sh/atoll/pkg/store"
)

const (
	// countEvery is after how many sweeps the records are counted. Counting reads all of them, so that it cannot drift.
	countEvery = 10
	countPage  = 500
)

// count tells the metrics how many records there are of each state.
func (s *Service) count(ctx context.Context) {
	counts, err := s.ledger.count(ctx)
	if err != nil {
		s.log.Info("Could not count claims", "error", err.Error())
		return
	}
	for state, n := range counts {
		s.metrics.records.WithLabelValues(string(state)).Set(float64(n))
	}
}

func (l *ledger) count(ctx context.Context) (map[state]int, error) {
	counts := map[state]int{statePending: 0, stateAnswered: 0, stateRefused: 0, stateEnded: 0, stateDamaged: 0}
	for after := ""; ; {
		page, err := l.store.Range(ctx, claimPrefix, after, countPage)
		if err != nil {
			return nil, fmt.Errorf("reading claims: %w", err)
		}
		for _, entry := range page {
			counts[stateOf(entry)]++
			after = entry.Key
		}
		if len(page) < countPage {
			return counts, nil
		}
	}
}

// stateDamaged counts records that cannot be read. None is ever written.
const stateDamaged state = "damaged"

func stateOf(entry store.Entry) state {
	var r struct {
		State state `json:"state"`
	}
	if err := json.Unmarshal(entry.Value, &r); err != nil {
		return stateDamaged
	}
	switch r.State {
	case statePending, stateAnswered, stateRefused, stateEnded:
		return r.State
	default:
		return stateDamaged
	}
}
