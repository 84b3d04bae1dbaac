// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// errHoldings is that an answer does not agree with earlier ones.
var errHoldings = errors.New("in the holdings,")

// holdings are kept by the callers, who alone know what they were answered.
type holdings struct {
	mu    sync.Mutex
	owner map[string]string            // uid of a Pod → the live sandbox that it was answered as
	keys  map[string]map[string]string // claim key → sandbox ids that were answered for it → uid of the Pod
}

func (b *holdings) init() { b.owner, b.keys = map[string]string{}, map[string]map[string]string{} }

// answered enters a sandbox. It fails if the Pod was answered as another one that was not given back (I1), or the claim
// key as another one at any time (I2).
func (b *holdings) answered(s *sandboxv1.Sandbox) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if key := s.GetClaimKey(); key != "" {
		if b.keys[key] == nil {
			b.keys[key] = map[string]string{}
		}
		b.keys[key][s.GetId()] = s.GetPodUid()
		if len(b.keys[key]) > 1 {
			return fmt.Errorf("%w I2: claim key %q was answered with %v", errHoldings, key, b.keys[key])
		}
	}
	if s.GetPhase() == sandboxv1.Phase_ENDED {
		return nil
	}
	if s.GetPodUid() == "" || s.GetPhase() != sandboxv1.Phase_RUNNING {
		return fmt.Errorf("%w the answer to a claim that waits for READY is %s in phase %s on pod %q", errHoldings, s.GetId(), s.GetPhase(), s.GetPodUid())
	}
	if other, taken := b.owner[s.GetPodUid()]; taken && other != s.GetId() {
		return fmt.Errorf("%w I1: pod %s (%s) of %s was answered as %s and as %s", errHoldings, s.GetPod(), s.GetPodUid(), s.GetClusterId(), other, s.GetId())
	}
	b.owner[s.GetPodUid()] = s.GetId()
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
