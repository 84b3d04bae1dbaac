// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"time"

	"navix.sh/atoll/pkg/verify"
)

// settlePatience is how long a federation may take until everything in it agrees again.
const settlePatience = time.Minute

// Verify holds the federation to what can be checked of its invariants from outside, once it has had time to settle. Call
// it when everything runs and no load is on.
func (s *Stack) Verify(ctx context.Context) error {
	federation, err := s.federation()
	if err != nil {
		return err
	}
	return federation.Settle(ctx, settlePatience).Err()
}

// federation is all that there is to look at.
func (s *Stack) federation() (*verify.Federation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looked != nil {
		return s.looked, nil
	}
	hub, err := s.HubClient()
	if err != nil {
		return nil, err
	}
	f := &verify.Federation{Metrics: s.metrics, Hub: &verify.HubReader{Clusters: hub, Envs: hub, Sandboxes: hub, Claims: hub, Hub: hub}}
	for _, id := range s.ids {
		reader, err := verify.NewReader(id, s.clusters[id].Config())
		if err != nil {
			return nil, err
		}
		f.Clusters = append(f.Clusters, reader)
	}
	s.looked = f
	return f, nil
}
