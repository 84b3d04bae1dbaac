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
	byKey  map[string]string // the sandbox that was returned for a claim key
	wrong  []error
	counts Counts
}

// Counts of recorded responses.
type Counts struct {
	// Answered counts the returned sandboxes, each once.
	Answered int
	// Doubled counts responses with a Pod that another caller held, or with another sandbox for a key.
	Doubled int
}

// NewHoldings returns empty holdings.
func NewHoldings() *Holdings {
	return &Holdings{byPod: map[string]*sandboxv1.Sandbox{}, byKey: map[string]string{}}
}

// ErrHoldings is a response that contradicts what callers hold.
var ErrHoldings = errors.New("it contradicts the holdings")

// Answered records a sandbox that was returned to a caller, unless it has ended. It returns an error, which Wrong returns as
// well, for a Pod that another caller holds (I1), and for a claim key that returned another sandbox at any time (I2).
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
	case s.GetClaimKey() == "": // a repeated claim with a key returns the same sandbox
		b.counts.Doubled++
		return fmt.Errorf("I1: sandbox %s of %s was answered to two claims without a key", s.GetId(), s.GetClusterId())
	case held.GetId() != s.GetId():
		b.counts.Doubled++
		return fmt.Errorf("I1: pod %s (%s) of %s was answered as %s and as %s", s.GetPod(), s.GetPodUid(), s.GetClusterId(), held.GetId(),
			s.GetId())
	}
	return nil
}

// Releasing removes a sandbox. Call it before the call that ends the sandbox; because its Pod may be returned again before that
// responds.
func (b *Holdings) Releasing(s *sandboxv1.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := b.byPod[s.GetPodUid()]; held.GetId() == s.GetId() {
		delete(b.byPod, s.GetPodUid())
	}
}

// Held returns the sandboxes that were returned and not removed, by Pod.
func (b *Holdings) Held() map[string]*sandboxv1.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.byPod)
}

// Live returns the ids of the held sandboxes, by the uid of their Pod.
func (b *Holdings) Live() map[string]string {
	live := map[string]string{}
	for pod, s := range b.Held() {
		live[pod] = s.GetId()
	}
	return live
}

// Counts returns the counts so far.
func (b *Holdings) Counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts
}

// Wrong returns the breaches so far.
func (b *Holdings) Wrong() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrong
}
