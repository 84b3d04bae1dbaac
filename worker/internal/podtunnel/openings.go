// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/worker/internal/keyed"
)

const (
	// mostOpenings is how many conversations of an account may be opened at a time.
	mostOpenings = 8
	// slowOpening is how many times longer than the shortest one an opening takes where there is too much to do.
	slowOpening = 2
	// openingPeriod is for how long the shortest one counts, at least, and at most twice that.
	openingPeriod = 5 * time.Minute
)

// openings bounds how many conversations of an account are opened at a time (I14): each costs the API server a TLS handshake and a
// connection to a kubelet. While they take much longer than the shortest one, it is one; else more, because an account's thousand new
// sandboxes need theirs soon, also where the API server is far away.
type openings struct {
	turns keyed.Semaphore // by account
	clock clock.PassiveClock

	mu     sync.Mutex
	byKind map[string]*limit // of exec, logs and ports, which take different times
}

func newOpenings(c clock.PassiveClock) *openings {
	return &openings{turns: keyed.Semaphore{Size: mostOpenings}, clock: c, byKind: map[string]*limit{}}
}

// begin waits for the account's turn.
func (o *openings) begin(ctx context.Context, account string, what *federationv1.ReachCall) (end func(), err error) {
	o.mu.Lock()
	weight := mostOpenings / int64(o.of(what).atOnce)
	o.mu.Unlock()
	return o.turns.Acquire(ctx, account, weight)
}

// took notes how long one took that was opened. One that failed says little: its end may have come from nearer than the Pod.
func (o *openings) took(what *federationv1.ReachCall, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of(what).took(o.clock.Now(), d)
}

func (o *openings) of(what *federationv1.ReachCall) *limit {
	kind := kindOf(what)
	if o.byKind[kind] == nil {
		o.byKind[kind] = &limit{atOnce: 1}
	}
	return o.byKind[kind]
}

func kindOf(what *federationv1.ReachCall) string {
	switch {
	case runs(what):
		return "exec"
	case what.GetLogs() != nil:
		return "logs"
	default:
		return "port"
	}
}

// limit is how many operations run at a time, by how long they take.
type limit struct {
	atOnce           int           // 1 to mostOpenings
	shortest, before time.Duration // of this period and the one before; 0: none
	since            time.Time     // when this period began
}

func (l *limit) took(now time.Time, d time.Duration) {
	if now.Sub(l.since) >= openingPeriod {
		l.before, l.shortest, l.since = l.shortest, 0, now
	}
	d = max(d, 1)
	l.shortest = min(cmp.Or(l.shortest, d), d)
	if d > slowOpening*min(l.shortest, cmp.Or(l.before, l.shortest)) {
		l.atOnce = max(1, l.atOnce/2)
	} else {
		l.atOnce = min(mostOpenings, l.atOnce+1)
	}
}
