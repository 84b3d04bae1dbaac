// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"navix.sh/atoll/pkg/segment"
)

// Health is what the owner of a view thinks of a cluster.
type Health uint32

// The states of a cluster. Silent, NoReceipt and Disconnected make it the last choice; from Unreachable on it gets no
// claims. Draining is a cluster that could.
const (
	Fresh Health = iota
	Silent
	NoReceipt
	Disconnected
	Unreachable
	Quarantined
	Draining
)

// LastChoice reports whether the cluster comes after all fresh ones.
func (h Health) LastChoice() bool { return h > Fresh && h < Unreachable }

// Eligible reports whether the cluster gets claims at all.
func (h Health) Eligible() bool { return h < Unreachable }

func (h Health) String() string {
	switch h {
	case Fresh:
		return "Fresh"
	case Silent:
		return "Silent"
	case NoReceipt:
		return "NoReceipt"
	case Disconnected:
		return "Disconnected"
	case Unreachable:
		return "Unreachable"
	case Draining:
		return "Draining"
	default:
		return "Quarantined"
	}
}

// Cluster is shared by all views that have members of it, so that a change of its health needs no new view.
type Cluster struct {
	ID     string
	health atomic.Uint32
	seen   atomic.Int64
}

// NewCluster returns a fresh cluster.
func NewCluster(id string) *Cluster { return &Cluster{ID: id} }

// Health is the cluster's current health.
func (c *Cluster) Health() Health { return Health(c.health.Load()) }

// SetHealth changes it for all views at once.
func (c *Cluster) SetHealth(h Health) { c.health.Store(uint32(h)) }

// Seen is when the cluster's data was last confirmed, on its owner's monotonic clock.
func (c *Cluster) Seen() time.Duration { return time.Duration(c.seen.Load()) }

// SetSeen records such a confirmation.
func (c *Cluster) SetSeen(at time.Duration) { c.seen.Store(int64(at)) }

// Candidate is one member that a claim may go to.
type Candidate struct {
	Cluster  *Cluster
	Segment  *segment.Segment
	Member   *segment.Member
	InFlight *atomic.Int32 // claims that the member's counts don't cover yet; nil counts as 0
}

// View is one Env as the router sees it: immutable, but for the health of clusters and the claims in flight, which it
// refers to.
type View struct {
	// hot is what every pick reads, two candidates a cache line; ordered by cluster, then name, as is cold, which is the rest.
	// Both lie behind the view itself where they fit: one place in memory less to wait for.
	hot  []hot
	cold []cold
}

type cold struct {
	segment *segment.Segment
	member  *segment.Member
}

type (
	room1 struct {
		hot  [1]hot
		cold [1]cold
	}
	room2 struct {
		hot  [2]hot
		cold [2]cold
	}
	room4 struct {
		hot  [4]hot
		cold [4]cold
	}
	room8 struct {
		hot  [8]hot
		cold [8]cold
	}
)

// newView is an empty view with room behind it: as much as is needed, since a hub has one for every Env.
func newView(candidates int) *View {
	switch {
	case candidates <= 1:
		return withRoom(func(r *room1) ([]hot, []cold) { return r.hot[:0], r.cold[:0] })
	case candidates <= 2:
		return withRoom(func(r *room2) ([]hot, []cold) { return r.hot[:0], r.cold[:0] })
	case candidates <= 4:
		return withRoom(func(r *room4) ([]hot, []cold) { return r.hot[:0], r.cold[:0] })
	case candidates <= 8:
		return withRoom(func(r *room8) ([]hot, []cold) { return r.hot[:0], r.cold[:0] })
	default:
		return &View{hot: make([]hot, 0, candidates), cold: make([]cold, 0, candidates)}
	}
}

func withRoom[R any](of func(*R) ([]hot, []cold)) *View {
	v := &struct {
		View
		room R
	}{}
	v.hot, v.cold = of(&v.room)
	return &v.View
}

type hot struct {
	cluster  *Cluster
	inFlight *atomic.Int32
	ready    int32
	room     int32 // places left in the queue
	priority int32
	flags    uint8
}

const (
	flagSaturated = 1 << iota
	flagCanGrow
	flagDefaultShape // a request without shape may go here
	flagUsable       // the member's state lets it serve
)

var none atomic.Int32

// NewView keeps what the candidates name, and may change their order.
func NewView(candidates []Candidate) *View {
	if !slices.IsSortedFunc(candidates, compareNames) {
		slices.SortFunc(candidates, compareNames)
	}
	v := newView(len(candidates))
	for _, c := range candidates {
		v.hot, v.cold = append(v.hot, newHot(c)), append(v.cold, cold{c.Segment, c.Member})
	}
	return v
}

// Replace is a view like v in which others take the place of the candidates from at on. Their names are the same.
func (v *View) Replace(at int, candidates []Candidate) *View {
	next := newView(len(v.hot))
	next.hot, next.cold = append(next.hot, v.hot...), append(next.cold, v.cold...)
	for i, c := range candidates {
		next.hot[at+i], next.cold[at+i] = newHot(c), cold{c.Segment, c.Member}
	}
	return next
}

func newHot(c Candidate) hot {
	m := c.Member
	h := hot{cluster: c.Cluster, inFlight: c.InFlight, ready: m.ReadyIdle, priority: m.Priority, flags: flagsOf(m)}
	h.room = int32(max(math.MinInt32/2, int64(m.QueueCapacity)-int64(m.Pending)))
	if h.inFlight == nil {
		h.inFlight = &none
	}
	if shapeMismatch(&Request{}, c) == "" {
		h.flags |= flagDefaultShape
	}
	return h
}

func flagsOf(m *segment.Member) (flags uint8) {
	switch m.State {
	case segment.Active:
		flags = flagUsable
	case segment.Saturated:
		flags = flagUsable | flagSaturated
	}
	if m.CanGrow {
		flags |= flagCanGrow
	}
	return flags
}

func compareNames(a, b Candidate) int {
	return cmp.Or(cmp.Compare(a.Cluster.ID, b.Cluster.ID), cmp.Compare(a.Member.Name, b.Member.Name))
}

// Len is the number of candidates.
func (v *View) Len() int {
	if v == nil {
		return 0
	}
	return len(v.hot)
}

// Candidate returns the candidate at an index that a Decision named.
func (v *View) Candidate(i int) Candidate {
	h, c := &v.hot[i], &v.cold[i]
	out := Candidate{Cluster: h.cluster, Segment: c.segment, Member: c.member, InFlight: h.inFlight}
	if out.InFlight == &none {
		out.InFlight = nil
	}
	return out
}
