// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Burst and rate of the streams that a cluster opens: one for its reports, and one for each tunnel, which is each request to a sandbox's
// port. Further streams wait.
const (
	streamsAtOnce    = 4096
	streamsPerSecond = 2000
	// maxPaced bounds the number of clusters that are tracked.
	maxPaced = 4096
)

// streamPace delays the streams of a cluster that opens too many, in the reader of their connection. TCP then slows the cluster down, and
// streams that are reset at once do not take the hub's time from other clusters (I14).
type streamPace struct {
	guests   *guestLimiter
	clusters *limiters[string]
}

func newPace() *streamPace {
	return &streamPace{guests: newGuestLimiter(), clusters: newLimiters[string](streamsPerSecond, streamsAtOnce, maxPaced)}
}

// tap runs in the connection's reader, before a stream is created. Callers that are not clusters share one limiter, and are rejected later.
func (p *streamPace) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if g := guestOf(ctx); g != nil {
		return ctx, p.guests.admit(g, info.FullMethodName)
	}
	cluster, _ := PeerCluster(ctx)
	if err := p.clusters.of(cluster).Wait(ctx); err != nil {
		return ctx, status.FromContextError(err).Err()
	}
	return ctx, nil
}

// limiters hold one limiter per party. When there are more than most parties, all limiters are reset.
type limiters[K comparable] struct {
	rate  rate.Limit
	burst int
	most  int

	mu sync.Mutex
	by map[K]*rate.Limiter
}

func newLimiters[K comparable](perSecond rate.Limit, burst, most int) *limiters[K] {
	return &limiters[K]{rate: perSecond, burst: burst, most: most, by: map[K]*rate.Limiter{}}
}

func (l *limiters[K]) of(party K) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.by[party]
	if limiter == nil {
		if len(l.by) >= l.most {
			clear(l.by)
		}
		limiter = rate.NewLimiter(l.rate, l.burst)
		l.by[party] = limiter
	}
	return limiter
}
