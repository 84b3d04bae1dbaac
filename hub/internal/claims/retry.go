// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"sync"
	"time"

	"navix.sh/atoll/pkg/wallclock"
)

const (
	// retryPause doubles, up to what the caller bears: a store that is full for a moment costs a moment, and one that is full
	// for hours is not written to without end.
	retryPause = 500 * time.Millisecond
	// mostIndexPause is how late a recovery may end once the store has room again.
	mostIndexPause = 30 * time.Second
	// mostLostPause is longer: each try reads the whole ledger, and the cluster may be away.
	mostLostPause = 5 * time.Minute
)

// latest is what is being done with the newest word of each cluster: one of each at a time (I10).
type latest struct {
	mu      sync.Mutex
	running map[string]*try
}

type try struct{ stop context.CancelFunc }

// begin ends what is being done with an older word of the cluster.
func (l *latest) begin(ctx context.Context, cluster string) (context.Context, *try) {
	ctx, stop := context.WithCancel(ctx)
	a := &try{stop}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.running[cluster]; before != nil {
		before.stop()
	}
	l.running[cluster] = a
	return ctx, a
}

func (l *latest) end(cluster string, a *try) {
	a.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[cluster] == a {
		delete(l.running, cluster)
	}
}

// retryUntilDone retries f until it succeeds. The cluster does not send its report again: its digest
// matches. What comes next of the same cluster takes the place of this.
func (s *Service) retryUntilDone(on *latest, cluster string, most time.Duration, do func(ctx context.Context) error) {
	s.spawn(func() {
		ctx, mine := on.begin(s.base, cluster)
		defer on.end(cluster, mine)
		for pause := retryPause; do(ctx) != nil && ctx.Err() == nil; pause = min(2*pause, most) {
			if wallclock.Sleep(ctx, s.clock, pause) != nil || s.fleet.Forgotten(cluster, "") {
				return
			}
		}
	})
}
