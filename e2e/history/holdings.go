// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Holdings are the sandboxes that callers hold. They are safe for concurrent use.
type Holdings struct {
	mu     sync.Mutex
	byPod  map[string]*sandboxv1.Sandbox
	byKey  map[string]string // the sandbox that a claim key was answered with
	wrong  []error
	counts Counts
}

// Counts of what was entered.
type Counts struct {
	// Answered are sandboxes, each counted once.
	Answered int
	// Doubled are answers with a Pod that another caller held, or with another sandbox for a key.
	Doubled int
}

// NewHoldings are empty.
func NewHoldings() *Holdings {
	return &Holdings{byPod: map[string]*sandboxv1.Sandbox{}, byKey: map[string]string{}}
}

// ErrHoldings is an answer that does not agree with what callers hold.
var ErrHoldings = errors.New("it contradicts the holdings")

// Answered enters a sandbox that a caller was answered, unless it has ended. An answer that contradicts others is an error, which
// Wrong returns as well: a Pod that another caller holds (I1), a claim key that was answered with another sandbox at any time (I2).
func (b *Holdings) Answered(s *sandboxv1.Sandbox) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.enter(s)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrHoldings, err)
		b.wrong = append(b.wrong, err)
	}
	return err
}

func (b *Holdings) enter(s *sandboxv1.Sandbox) error {
	if key := s.GetClaimKey(); key != "" {
		if other, known := b.byKey[key]; known && other != s.GetId() {
			b.counts.Doubled++
			return fmt.Errorf("I2: claim key %q was answered with %s and %s", key, other, s.GetId())
		}
		b.byKey[key] = s.GetId()
	}
	if Over(s) {
		return nil
	}
	switch held := b.byPod[s.GetPodUid()]; {
	case s.GetPodUid() == "" || s.GetPhase() != sandboxv1.Phase_RUNNING:
		return fmt.Errorf("sandbox %s was answered in phase %s on pod %q", s.GetId(), s.GetPhase(), s.GetPodUid())
	case held == nil:
		b.counts.Answered++
		b.byPod[s.GetPodUid()] = s
	case s.GetClaimKey() == "": // a claim with a key that is made again is answered the same
		b.counts.Doubled++
		return fmt.Errorf("I1: sandbox %s of %s was answered to two claims without a key", s.GetId(), s.GetClusterId())
	case held.GetId() != s.GetId():
		b.counts.Doubled++
		return fmt.Errorf("I1: pod %s (%s) of %s was answered as %s and as %s", s.GetPod(), s.GetPodUid(), s.GetClusterId(), held.GetId(), s.GetId())
	}
	return nil
}

// Releasing strikes a sandbox out. It comes before the call that ends it: its Pod may be answered again before that returns.
func (b *Holdings) Releasing(s *sandboxv1.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := b.byPod[s.GetPodUid()]; held.GetId() == s.GetId() {
		delete(b.byPod, s.GetPodUid())
	}
}

// Held are the sandboxes that were answered and not struck out, by Pod.
func (b *Holdings) Held() map[string]*sandboxv1.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.byPod)
}

// Live are the ids of the sandboxes that are held, by the uid of their Pod.
func (b *Holdings) Live() map[string]string {
	live := map[string]string{}
	for pod, s := range b.Held() {
		live[pod] = s.GetId()
	}
	return live
}

// Counts so far.
func (b *Holdings) Counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts
}

// Wrong are the breaches so far.
func (b *Holdings) Wrong() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrong
}
