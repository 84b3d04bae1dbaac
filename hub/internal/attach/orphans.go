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
	// maxOrphans bounds the remembered claims of a cluster whose stream ended; the oldest are forgotten first.
	maxOrphans = 32_768
	// releasing is how many orphans of a cluster are released at a time, and releaseAgain the pause before a retry of those that
	// failed.
	releasing    = 16
	releaseAgain = 2 * time.Second
)

// callID names a dispatch permanently: a term's streams are numbered, and a stream's dispatches.
type callID struct {
	cluster, term    string
	stream, dispatch uint64
}

// orphans joins the two halves of a claim without a key whose stream ended: that no caller here got a response, and what the
// response was, which the worker reports when it is back. A sandbox with both halves is owed a release until its worker has
// confirmed it. The halves arrive in any order. None of this outlives the hub: a forgotten sandbox ends by its first-activity
// timeout.
type orphans struct {
	mu     sync.Mutex
	halves map[string]halves              // by cluster: one cluster's input takes no room from the others (I14)
	owed   map[string]map[string]struct{} // sandbox ids by cluster
}

type halves struct {
	lost *lru.Cache // of callID
	left *lru.Cache // sandbox ids by callID
}

func newOrphans() *orphans {
	return &orphans{halves: map[string]halves{}, owed: map[string]map[string]struct{}{}}
}

// known returns the halves of a cluster. Called with the lock held.
func (o *orphans) known(cluster string) halves {
	h, ok := o.halves[cluster]
	if !ok {
		h = halves{lost: lru.New(maxOrphans), left: lru.New(maxOrphans)}
		o.halves[cluster] = h
	}
	return h
}

// lose notes a call whose response will not arrive. It reports whether a release is owed now.
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

// leave notes the response to a call, of which the worker does not know whether it arrived.
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

// minted reports whether the id belongs to this stream's cluster (I15).
func (c *conn) minted(sandbox string) bool {
	cluster, ok := validate.ClusterOf(sandbox)
	return ok && cluster == c.clusterID
}

// lose takes the hub's half: calls of this stream, which has ended.
func (c *conn) lose(dispatches ...uint64) {
	owed, elsewhere := false, &federationv1.RelayLost{}
	for _, dispatch := range dispatches {
		id := c.origin
		id.dispatch = dispatch
		if c.orphans.lose(id) {
			owed = true
			continue
		}
		elsewhere.Calls = append(elsewhere.Calls, &federationv1.LostCall{
			ClusterId: id.cluster, Term: id.term, Stream: id.stream, Dispatch: id.dispatch,
		})
	}
	if owed {
		c.back() // the worker has sent its half on a later stream
	}
	if len(elsewhere.GetCalls()) > 0 {
		c.elsewhere(elsewhere) // or sends it on one of another replica
	}
}

// settle releases what is owed, until the worker has confirmed it.
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

// releaseOrphan releases a sandbox that was returned to no caller. If the release fails the sandbox stays owed.
func (c *conn) releaseOrphan(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	answer, err := c.dispatch(ctx, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Release{Release: &sandboxv1.ReleaseSandboxRequest{Id: id}},
	})
	if e := answer.GetError(); e != nil && codes.Code(e.GetCode()) != codes.NotFound { // an unknown sandbox is gone
		err = errors.New(e.GetMessage())
	}
	if err != nil {
		c.log.Error(err, "could not release a sandbox that no caller was given", "sandbox", id)
		return
	}
	c.orphans.released(c.clusterID, id)
	c.metrics.orphans.Inc()
	c.log.Info("released a sandbox that no caller was given", "sandbox", id)
}
