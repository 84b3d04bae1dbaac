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

// pace holds up the streams of a cluster that opens many, on the reader of their connection: so TCP holds up the cluster, and streams
// that are reset at once take the hub's time from no other (I14).
type pace struct {
	joins *joins

	mu       sync.Mutex
	clusters map[string]*rate.Limiter
}

func newPace() *pace { return &pace{joins: newJoins(), clusters: map[string]*rate.Limiter{}} }

// tap runs on the connection's reader, before a stream is made. Who is no cluster is refused later, and shares one pace.
func (p *pace) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if g := guestOf(ctx); g != nil {
		return ctx, p.joins.admit(g, info.FullMethodName)
	}
	cluster, _ := PeerCluster(ctx)
	if err := p.of(cluster).Wait(ctx); err != nil {
		return ctx, status.FromContextError(err).Err()
	}
	return ctx, nil
}

func (p *pace) of(cluster string) *rate.Limiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiter := p.clusters[cluster]
	if limiter == nil {
		if len(p.clusters) >= maxPaced {
			clear(p.clusters)
		}
		limiter = rate.NewLimiter(streamsPerSecond, streamsAtOnce)
		p.clusters[cluster] = limiter
	}
	return limiter
}
