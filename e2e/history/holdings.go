// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"maps"
	"sync"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Holdings are the sandboxes that callers hold. They are safe for concurrent use.
type Holdings struct {
	mu     sync.Mutex
	byPod  map[string]*sandboxv1.Sandbox
	wrong  []error
	counts Counts
}

// Counts of what was entered.
type Counts struct {
	// Answered are sandboxes, each counted once.
	Answered int
	// Doubled are answers with a Pod that somebody else held.
	Doubled int
}

// NewHoldings are empty.
func NewHoldings() *Holdings { return &Holdings{byPod: map[string]*sandboxv1.Sandbox{}} }

// Answered enters a sandbox that a caller was answered and does not know to have ended.
func (b *Holdings) Answered(s *sandboxv1.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch held := b.byPod[s.GetPodUid()]; {
	case s.GetPodUid() == "":
		b.wrong = append(b.wrong, fmt.Errorf("sandbox %s was answered in phase %s without a Pod", s.GetId(), s.GetPhase()))
	case held == nil:
		b.counts.Answered++
		b.byPod[s.GetPodUid()] = s
	case s.GetClaimKey() == "": // who asks again with a key is answered the same
		b.counts.Doubled++
		b.wrong = append(b.wrong, fmt.Errorf("I1: sandbox %s of %s was answered to two claims without a key", s.GetId(), s.GetClusterId()))
	case held.GetId() != s.GetId():
		b.counts.Doubled++
		b.wrong = append(b.wrong, fmt.Errorf("I1: pod %s (%s) of %s was answered as %s and as %s",
			s.GetPod(), s.GetPodUid(), s.GetClusterId(), held.GetId(), s.GetId()))
	}
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
