// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"sync"
	"sync/atomic"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

const (
	// scarce is how many idle Pods a member may have left when peers are told of the claims that are on their way to it. With more
	// left no replica takes another one's Pod.
	scarce = 8
	// hintBatch is how many members one frame names.
	hintBatch = 512
)

// memberKey names a member of an Env. There are as many as members (I10).
type memberKey struct {
	cluster *cluster
	env     segment.Key
	pool    string
}

// shares are this replica's claims in flight, as its peers are told of them.
type shares struct {
	mu  sync.Mutex // a leaf, but for relays
	own map[memberKey]share
}

type share struct {
	claims int32
	told   bool
}

// begin counts a claim, and tells peers if few idle Pods are left.
func (f *Fleet) begin(key memberKey, left int32) {
	f.shares.mu.Lock()
	defer f.shares.mu.Unlock()
	if f.shares.own == nil {
		f.shares.own = map[memberKey]share{}
	}
	own := f.shares.own[key]
	own.claims++
	own.told = own.told || left < scarce
	f.shares.own[key] = own
	f.hint(key, own)
}

// end stops counting claims.
func (f *Fleet) end(key memberKey, claims int32) {
	f.shares.mu.Lock()
	defer f.shares.mu.Unlock()
	own := f.shares.own[key]
	if own.claims -= claims; own.claims <= 0 {
		delete(f.shares.own, key)
	} else {
		f.shares.own[key] = own
	}
	f.hint(key, own)
}

// hint tells all peers. Called with the lock held, so that the last one told is the last one true.
func (f *Fleet) hint(key memberKey, own share) {
	if own.told {
		for _, r := range f.relayed() {
			r.hint(key, own.claims)
		}
	}
}

// hintAll tells one peer what the others know.
func (f *Fleet) hintAll(r *Relay) {
	f.shares.mu.Lock()
	defer f.shares.mu.Unlock()
	for key, own := range f.shares.own {
		if own.told {
			r.hint(key, own.claims)
		}
	}
}

func (r *Relay) hint(key memberKey, claims int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hints == nil {
		r.hints = map[memberKey]int32{}
	}
	r.hints[key] = claims
	r.signal()
}

// popHints takes what is yet to be told; nil: nothing. Called with the lock held.
func (r *Relay) popHints() *federationv1.RelayFrame {
	if len(r.hints) == 0 {
		return nil
	}
	out := &federationv1.RelayClaims{}
	for key, claims := range r.hints {
		out.Members = append(out.Members, &federationv1.RelayMemberClaims{
			ClusterId: key.cluster.ID, Namespace: key.env.Namespace, Env: key.env.Name, Pool: key.pool, Claims: uint32(max(0, claims)),
		})
		if delete(r.hints, key); len(out.Members) == hintBatch {
			break
		}
	}
	return &federationv1.RelayFrame{Body: &federationv1.RelayFrame_Claims{Claims: out}}
}

// hintKey names a member in what a peer says.
type hintKey struct {
	cluster string
	env     segment.Key
	pool    string
}

// hinted is what is deducted for a peer.
type hinted struct {
	cell   *atomic.Int32
	claims int32
}

// hints deducts the claims of a peer from the idle Pods of members that this replica knows; so there are at most as many entries as
// members.
func (i *Inlet) hints(in *federationv1.RelayClaims) {
	for _, m := range in.GetMembers() {
		key := hintKey{m.GetClusterId(), segment.Key{Namespace: m.GetNamespace(), Name: m.GetEnv()}, m.GetPool()}
		before, known := i.hinted[key]
		if known {
			before.cell.Add(-before.claims)
			delete(i.hinted, key)
		}
		if m.GetClaims() == 0 {
			continue
		}
		if cell, most := cellOf(i.fleet.View(key.env), key); cell != nil {
			claims := int32(min(int64(m.GetClaims()), most, math.MaxInt32)) // more would fill the queue, by a hint
			cell.Add(claims)
			i.hinted[key] = hinted{cell, claims}
		}
	}
}

// cellOf returns where the claims for a member are counted, and how many of them can have a Pod; nil: there is no such member.
func cellOf(view *router.View, key hintKey) (cell *atomic.Int32, most int64) {
	for n := range view.Len() {
		if c := view.Candidate(n); c.Cluster.ID == key.cluster && c.Member().Name == key.pool {
			return c.InFlight, int64(c.Member().ReadyIdle) + int64(c.Member().Claiming)
		}
	}
	return nil, 0
}

// unhint takes back what is deducted for the peer.
func (i *Inlet) unhint() {
	for _, h := range i.hinted {
		h.cell.Add(-h.claims)
	}
	clear(i.hinted)
}
