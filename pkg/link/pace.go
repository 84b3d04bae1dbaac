// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// How many streams a cluster opens: one for its reports, and one for each tunnel, which is each request to a sandbox's port. More wait.
const (
	streamsAtOnce    = 4096
	streamsPerSecond = 2000
	// maxPaced bounds the clusters that are remembered.
	maxPaced = 4096
)

// streamPace holds up the streams of a cluster that opens many, on the reader of their connection: so TCP holds up the cluster, and streams
// that are reset at once take the hub's time from no other (I14).
type streamPace struct {
	joins    *joins
	clusters *limiters[string]
}

func newPace() *streamPace {
	return &streamPace{joins: newJoins(), clusters: newLimiters[string](streamsPerSecond, streamsAtOnce, maxPaced)}
}

// tap runs on the connection's reader, before a stream is made. Who is no cluster is refused later, and shares one pace.
func (p *streamPace) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if g := guestOf(ctx); g != nil {
		return ctx, p.joins.admit(g, info.FullMethodName)
	}
	cluster, _ := PeerCluster(ctx)
	if err := p.clusters.of(cluster).Wait(ctx); err != nil {
		return ctx, status.FromContextError(err).Err()
	}
	return ctx, nil
}

// limiters are one limiter for each party. Of many parties all are forgotten.
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
