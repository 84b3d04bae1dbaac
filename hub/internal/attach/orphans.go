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
	// maxOrphans bounds the remembered claims of a cluster whose stream ended. The oldest are dropped first.
	maxOrphans = 32_768
	// releasing is the number of a cluster's orphans that are released at a time. releaseAgain is the pause before failed releases are
	// retried.
	releasing    = 16
	releaseAgain = 2 * time.Second
)

// callID identifies a dispatch permanently: the streams of a term are numbered, and so are the dispatches of a stream.
type callID struct {
	cluster, term    string
	stream, dispatch uint64
}

// orphans matches the two halves of a claim without a key whose stream ended. The hub's half is that no caller here got a response. The
// worker's half is the response, which the worker reports when it attaches again. The halves arrive in any order. A sandbox with both
// halves must be released until its worker has confirmed it. None of this outlives the hub: a sandbox that is forgotten ends by its
// first-activity timeout.
type orphans struct {
	mu        sync.Mutex
	halves    map[string]halves              // by cluster, so that one cluster's input takes no room from others (I14)
	toRelease map[string]map[string]struct{} // ids of sandboxes to release, by cluster
}

type halves struct {
	lost *lru.Cache // of callID
	left *lru.Cache // sandbox ids by callID
}

func newOrphans() *orphans {
	return &orphans{halves: map[string]halves{}, toRelease: map[string]map[string]struct{}{}}
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

// addLost records a call whose response will not arrive. It returns true if a sandbox must be released now.
func (o *orphans) addLost(id callID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.known(id.cluster)
	sandbox, known := h.left.Get(id)
	if !known {
		h.lost.Add(id, nil)
		return false
	}
	h.left.Remove(id)
	o.queueReleaseLocked(id.cluster, sandbox.(string))
	return true
}

// addUnacknowledged records the response to a call if the worker does not know whether the response arrived.
func (o *orphans) addUnacknowledged(id callID, sandbox string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.known(id.cluster)
	if _, lost := h.lost.Get(id); !lost {
		h.left.Add(id, sandbox)
		return
	}
	h.lost.Remove(id)
	o.queueReleaseLocked(id.cluster, sandbox)
}

func (o *orphans) queueRelease(cluster, sandbox string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queueReleaseLocked(cluster, sandbox)
}

func (o *orphans) queueReleaseLocked(cluster, sandbox string) {
	all := o.toRelease[cluster]
	if all == nil {
		all = map[string]struct{}{}
		o.toRelease[cluster] = all
	}
	if len(all) < maxOrphans {
		all[sandbox] = struct{}{}
	}
}

func (o *orphans) released(cluster, sandbox string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.toRelease[cluster], sandbox)
	if len(o.toRelease[cluster]) == 0 {
		delete(o.toRelease, cluster)
	}
}

func (o *orphans) of(cluster string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.toRelease[cluster]))
}

// unacknowledged records the worker's half.
func (c *conn) unacknowledged(all []*federationv1.Unacknowledged) {
	for _, u := range all {
		id := c.origin
		id.stream, id.dispatch = u.GetStream(), u.GetDispatch()
		if c.minted(u.GetSandboxId()) {
			c.server.orphans.addUnacknowledged(id, u.GetSandboxId())
		}
	}
}

// minted reports whether the id belongs to this stream's cluster (I15).
func (c *conn) minted(sandbox string) bool {
	cluster, ok := validate.ClusterOf(sandbox)
	return ok && cluster == c.clusterID
}

// recordLost records the hub's half: open calls of this stream, which has ended.
func (c *conn) recordLost(dispatches ...uint64) {
	queued, elsewhere := false, &federationv1.RelayLost{}
	for _, dispatch := range dispatches {
		id := c.origin
		id.dispatch = dispatch
		if c.server.orphans.addLost(id) {
			queued = true
			continue
		}
		elsewhere.Calls = append(elsewhere.Calls, &federationv1.LostCall{
			ClusterId: id.cluster, Term: id.term, Stream: id.stream, Dispatch: id.dispatch,
		})
	}
	if queued {
		c.server.wakeReleases(c.clusterID) // the worker has already sent its half on a later stream
	}
	if len(elsewhere.GetCalls()) > 0 {
		c.server.lost(elsewhere) // or the worker sends it on a stream of another replica
	}
}

// settle releases queued sandboxes until the worker has confirmed each release.
func (c *conn) settle(ctx context.Context) {
	for {
		var group errgroup.Group
		group.SetLimit(releasing)
		for _, id := range c.server.orphans.of(c.clusterID) {
			group.Go(func() error {
				c.releaseOrphan(ctx, id)
				return nil
			})
		}
		_ = group.Wait()
		var again <-chan time.Time
		if len(c.server.orphans.of(c.clusterID)) > 0 {
			again = c.server.opts.Clock.After(releaseAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.releases:
		case <-again:
		}
	}
}

// releaseOrphan releases a sandbox that no caller got. If the release fails, the sandbox stays queued.
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
	c.server.orphans.released(c.clusterID, id)
	c.server.metrics.orphans.Inc()
	c.log.Info("released a sandbox that no caller was given", "sandbox", id)
}
