// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"slices"
	"sync"
	"time"

	"navix.sh/atoll/worker/internal/keyed"
)

const (
	// mostOpenings is how many conversations of an account may be in the opening at a time.
	mostOpenings = 8
	// openingsPace is the time of an opening at which one at a time is enough. Where each takes longer, for example because the API server is
	// far away, more of them are opened at a time, and an account has about 40 a second all the same.
	openingsPace = 25 * time.Millisecond
	// openingsRecent is how many openings the API server is judged by.
	openingsRecent = 32
)

// openings bounds how many conversations of an account are opened at a time (I14): each costs the API server a TLS handshake and a
// connection to a kubelet.
type openings struct {
	turns keyed.Semaphore // by account

	mu     sync.Mutex
	recent [openingsRecent]time.Duration // 0: not used yet
	next   int
}

func newOpenings() *openings { return &openings{turns: keyed.Semaphore{Size: mostOpenings}} }

// begin waits for the account's turn.
func (o *openings) begin(ctx context.Context, account string) (end func(), err error) {
	return o.turns.Acquire(ctx, account, weightOf(o.fastest()))
}

// took notes how long one took that was opened. One that failed says little: its end may have come from nearer than the API server.
func (o *openings) took(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recent[o.next] = max(d, 1)
	o.next = (o.next + 1) % openingsRecent
}

// fastest returns the shortest time of the recent openings; because the others tell how busy the machine was. 0: there was none.
func (o *openings) fastest() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	used := slices.DeleteFunc(slices.Clone(o.recent[:]), func(d time.Duration) bool { return d == 0 })
	if len(used) == 0 {
		return 0
	}
	return slices.Min(used)
}

// weightOf returns how much of mostOpenings an opening takes, by how fast they are.
func weightOf(fastest time.Duration) int64 {
	if fastest <= openingsPace {
		return mostOpenings
	}
	return max(1, int64(mostOpenings*openingsPace/fastest))
}
