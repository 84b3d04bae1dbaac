// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"fmt"
	"maps"
	"sync"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// holdings are kept by the callers, who alone know what they were answered.
type holdings struct {
	mu    sync.Mutex
	owner map[string]string // uid of a Pod → the sandbox that it was answered as and that was not given back
	keys  map[string]string // claim key → sandbox that was answered for it
}

func (b *holdings) init() { b.owner, b.keys = map[string]string{}, map[string]string{} }

// answered enters a sandbox. It fails if the Pod was answered as another one that was not given back (I1), or the claim
// key as another one at any time (I2).
func (b *holdings) answered(s *sandboxv1.Sandbox) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	id, pod := s.GetId(), s.GetPodUid()
	if key := s.GetClaimKey(); key != "" {
		if other, known := b.keys[key]; known && other != id {
			return fmt.Errorf("in the holdings, I2: claim key %q was answered with %s and %s", key, other, id)
		}
		b.keys[key] = id
	}
	if pod == "" || s.GetPhase() != sandboxv1.Phase_RUNNING {
		return fmt.Errorf("in the holdings, the answer to a claim that waits for READY is %s in phase %s on pod %q", id, s.GetPhase(), pod)
	}
	if other, taken := b.owner[pod]; taken && other != id {
		return fmt.Errorf("in the holdings, I1: pod %s (%s) of %s was answered as %s and as %s", s.GetPod(), pod, s.GetClusterId(), other, id)
	}
	b.owner[pod] = id
	return nil
}

func (b *holdings) released(s *sandboxv1.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.owner, s.GetPodUid())
}

// live is a copy of pod uid → sandbox.
func (b *holdings) live() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.owner)
}
