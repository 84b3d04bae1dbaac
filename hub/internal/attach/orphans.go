// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"k8s.io/utils/lru"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/validate"
)

const (
	// maxOrphans bounds what is remembered of a cluster's claims whose stream ended; the oldest are forgotten first.
	maxOrphans = 32_768
	// releasing is how many orphans of a cluster are released at a time, and releaseAgain when those are that could not be.
	releasing    = 16
	releaseAgain = 2 * time.Second
)

// callID names a dispatch for good: a term's streams are numbered, and a stream's dispatches.
type callID struct {
	cluster, term    string
	stream, dispatch uint64
}

// orphans brings together the two halves of what happened to a claim without a key whose stream ended: that nobody here
// was told of an answer, and what the answer was, which the worker says when it is back. A sandbox of which both are known
// is owed a release until its worker has confirmed it. The halves come in any order. Nothing of it outlives the hub: what
// is forgotten ends by its first-activity timeout.
type orphans struct {
	mu     sync.Mutex
	halves map[string]halves              // by cluster: what one sends takes no room from the others (I14)
	owed   map[string]map[string]struct{} // sandbox ids by cluster
}

type halves struct {
	lost *lru.Cache // of callID
	left *lru.Cache // sandbox ids by callID
}

func newOrphans() *orphans {
	return &orphans{halves: map[string]halves{}, owed: map[string]map[string]struct{}{}}
}

// known returns the halves of a cluster. The lock is held.
func (o *orphans) known(cluster string) halves {
	h, ok := o.halves[cluster]
	if !ok {
		h = halves{lost: lru.New(maxOrphans), left: lru.New(maxOrphans)}
		o.halves[cluster] = h
	}
	return h
}

// lose notes a call whose answer will not be heard. It reports whether a release is owed now.
func (o *orphans) lose(id callID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.known(id.cluster)
	sandbox, known := h.left.Get(id)
	if !known {
		h.lost.Add(id, nil)
		return false
	}
	h.left.Remove(id)
	o.oweLocked(id.cluster, sandbox.(string))
	return true
}

// leave notes what a call was answered that the worker does not know to have arrived.
func (o *orphans) leave(id callID, sandbox string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.known(id.cluster)
	if _, lost := h.lost.Get(id); !lost {
		h.left.Add(id, sandbox)
		return
	}
	h.lost.Remove(id)
	o.oweLocked(id.cluster, sandbox)
}

func (o *orphans) owe(cluster, sandbox string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.oweLocked(cluster, sandbox)
}

func (o *orphans) oweLocked(cluster, sandbox string) {
	all := o.owed[cluster]
	if all == nil {
		all = map[string]struct{}{}
		o.owed[cluster] = all
	}
	if len(all) < maxOrphans {
		all[sandbox] = struct{}{}
	}
}

func (o *orphans) released(cluster, sandbox string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.owed[cluster], sandbox)
	if len(o.owed[cluster]) == 0 {
		delete(o.owed, cluster)
	}
}

func (o *orphans) of(cluster string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.owed[cluster]))
}

// unacknowledged takes the worker's half.
func (c *conn) unacknowledged(all []*federationv1.Unacknowledged) {
	for _, u := range all {
		id := c.origin
		id.stream, id.dispatch = u.GetStream(), u.GetDispatch()
		if c.minted(u.GetSandboxId()) {
			c.orphans.leave(id, u.GetSandboxId())
		}
	}
}

// minted reports whether the id is one of this stream's cluster (I15).
func (c *conn) minted(sandbox string) bool {
	cluster, ok := validate.ClusterOf(sandbox)
	return ok && cluster == c.clusterID
}

// lose takes the hub's half: calls of this stream, which is over.
func (c *conn) lose(dispatches ...uint64) {
	owed := false
	for _, dispatch := range dispatches {
		id := c.origin
		id.dispatch = dispatch
		owed = c.orphans.lose(id) || owed
	}
	if owed {
		c.back() // the worker has said its half on a later stream
	}
}

// settle releases what is owed, until it has been confirmed.
func (c *conn) settle(ctx context.Context) {
	for {
		var group errgroup.Group
		group.SetLimit(releasing)
		for _, id := range c.orphans.of(c.clusterID) {
			group.Go(func() error {
				c.releaseOrphan(ctx, id)
				return nil
			})
		}
		_ = group.Wait()
		var again <-chan time.Time
		if len(c.orphans.of(c.clusterID)) > 0 {
			again = c.opts.Clock.After(releaseAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.owes:
		case <-again:
		}
	}
}

// releaseOrphan gives back a sandbox that nobody was told of. One that could not be stays owed.
func (c *conn) releaseOrphan(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	answer, err := c.dispatch(ctx, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Release{Release: &sandboxv1.ReleaseSandboxRequest{Id: id}},
	})
	if e := answer.GetError(); e != nil && codes.Code(e.GetCode()) != codes.NotFound { // a sandbox that is not known is gone
		err = errors.New(e.GetMessage())
	}
	if err != nil {
		c.log.Error(err, "could not release a sandbox that nobody was told of", "sandbox", id)
		return
	}
	c.orphans.released(c.clusterID, id)
	c.metrics.orphans.Inc()
	c.log.Info("released a sandbox that nobody was told of", "sandbox", id)
}
