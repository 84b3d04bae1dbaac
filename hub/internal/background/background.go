// SPDX-License-Identifier: Apache-2.0

// Package background runs work that continues after its call has returned, and ends with its service.
//
//   - At most 1024 jobs follow calls at a time. Beyond that the caller does the work itself (I10). Package claims bounds the jobs of each
//     cluster.
//   - Only a cluster's newest report is retried; because its digest matches, so that the cluster does not send it again (I10):
//     TestTheNewestReportEndsTheWorkOnOlderOnes.
//   - Close ends every job and waits for it; because the store is closed next.
package background

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/wallclock"
)

const (
	// MaxFollowing bounds the jobs of a group that follow calls.
	MaxFollowing = 1024
	// retryPause is the first pause between retries. It doubles up to the caller's maximum, so that a store that is full for a moment delays
	// for a moment, and one that is full for hours gets few writes.
	retryPause = 500 * time.Millisecond
)

// Group holds the jobs of one service.
type Group struct {
	clock clock.WithTicker
	base  context.Context
	stop  context.CancelFunc
	slots chan struct{}

	mu     sync.Mutex
	jobs   sync.WaitGroup
	closed bool
}

// New returns a Group without jobs.
func New(on clock.WithTicker, log logr.Logger) *Group {
	g := &Group{clock: on, slots: make(chan struct{}, MaxFollowing)}
	g.base, g.stop = context.WithCancel(logr.NewContext(context.Background(), log))
	return g
}

// Context returns a context that ends with the group.
func (g *Group) Context() context.Context { return g.base }

// Close ends all jobs and waits for them.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	g.jobs.Wait()
}

// Go starts a job. It returns false once the group is closed.
func (g *Group) Go(job func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.jobs.Go(job)
	return true
}

// Follow runs a job in the background of a call, or at once if MaxFollowing jobs run.
func (g *Group) Follow(job func()) {
	select {
	case g.slots <- struct{}{}:
		if !g.Go(func() { defer func() { <-g.slots }(); job() }) {
			<-g.slots
		}
	default:
		job()
	}
}

// Following counts the jobs that follow calls now.
func (g *Group) Following() int { return len(g.slots) }

// Latest tracks the work on each cluster's newest report.
type Latest struct {
	mu      sync.Mutex
	running map[string]*try
}

type try struct{ stop context.CancelFunc }

// begin registers work on a report, and ends the work on an older report of the cluster.
func (l *Latest) begin(ctx context.Context, cluster string) (context.Context, *try) {
	ctx, stop := context.WithCancel(ctx)
	t := &try{stop}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.running[cluster]; before != nil {
		before.stop()
	}
	if l.running == nil {
		l.running = map[string]*try{}
	}
	l.running[cluster] = t
	return ctx, t
}

func (l *Latest) end(cluster string, t *try) {
	t.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[cluster] == t {
		delete(l.running, cluster)
	}
}

// RetryUntilDone retries the work on a cluster's newest report until it succeeds, with pauses up to a maximum. It ends when the
// next report arrives, or when over returns true after a failure.
func (g *Group) RetryUntilDone(on *Latest, cluster string, most time.Duration, over func() bool, do func(ctx context.Context) error) {
	ctx, mine := on.begin(g.base, cluster) // here, because jobs may begin in another order than reports arrive
	began := g.Go(func() {
		defer on.end(cluster, mine)
		for pause := retryPause; do(ctx) != nil && ctx.Err() == nil; pause = min(2*pause, most) {
			if wallclock.Sleep(ctx, g.clock, pause) != nil || over() {
				return
			}
		}
	})
	if !began {
		on.end(cluster, mine)
	}
}
