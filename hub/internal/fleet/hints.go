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
	// scarce is the number of idle Pods below which peers get hints of the claims in flight to a member. With more idle Pods left, no replica
	// takes another's Pod.
	scarce = 8
	// hintBatch is the maximum number of members in one frame.
	hintBatch = 512
)

// memberKey names a member of an Env. The number of keys is bounded by the number of members (I10).
type memberKey struct {
	cluster *cluster
	env     segment.Key
	pool    string
}

// shares counts this replica's claims in flight, which it sends to peers as hints.
type shares struct {
	mu  sync.Mutex // only the locks of relays are taken with it held
	own map[memberKey]share
}

type share struct {
	claims int32
	told   bool
}

// begin counts a claim, and sends a hint to peers if few idle Pods are left.
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

// hint queues a hint for all peers. Called with the lock held, so that the last hint is the latest count.
func (f *Fleet) hint(key memberKey, own share) {
	if own.told {
		for _, r := range f.relayed() {
			r.hint(key, own.claims)
		}
	}
}

// hintAll queues for one peer all hints that the others have.
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
	r.wake.give()
}

// popHints removes up to hintBatch queued hints and returns their frame, or nil if there are none. Called with the lock held.
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

// hintKey names a member in a peer's hint.
type hintKey struct {
	cluster string
	env     segment.Key
	pool    string
}

// hinted is one deduction for a peer's claims.
type hinted struct {
	cell   *atomic.Int32
	claims int32
}

// hints deducts a peer's claims from the idle Pods of members that this replica knows. So there are at most as many entries as members.
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
			claims := int32(min(int64(m.GetClaims()), most, math.MaxInt32)) // a larger hint would make the queue look full
			cell.Add(claims)
			i.hinted[key] = hinted{cell, claims}
		}
	}
}

// cellOf returns the counter of a member's claims in flight, and how many claims can have a Pod. It returns nil if there is no such member.
func cellOf(view *router.View, key hintKey) (cell *atomic.Int32, most int64) {
	for n := range view.Len() {
		if c := view.Candidate(n); c.Cluster.ID == key.cluster && c.Member().Name == key.pool {
			return c.InFlight, int64(c.Member().ReadyIdle) + int64(c.Member().Claiming)
		}
	}
	return nil, 0
}

// unhint reverts all deductions for the peer.
func (i *Inlet) unhint() {
	for _, h := range i.hinted {
		h.cell.Add(-h.claims)
	}
	clear(i.hinted)
}
