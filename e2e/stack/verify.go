// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"time"

	"navix.sh/atoll/pkg/verify"
)

// settlePatience bounds the time until a federation is consistent again.
const settlePatience = time.Minute

// Verify checks the federation's invariants from outside, after it has settled. Call it when everything runs without load.
func (s *Stack) Verify(ctx context.Context) error {
	federation, err := s.federation()
	if err != nil {
		return err
	}
	return federation.Settle(ctx, settlePatience).Err()
}

// federation returns all places to read.
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
