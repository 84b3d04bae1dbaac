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

// Health is the health of a cluster, as the view's owner sees it.
type Health uint32

// The states of a cluster. Silent, NoReceipt and Disconnected make it the last choice; from Unreachable on it gets no claims. A
// Draining cluster could serve them.
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
	scope  atomic.Pointer[Scope]
}

// Scope is what a cluster may serve (I15). An empty set is everything.
type Scope struct {
	Namespaces, Teams map[string]struct{}
	Envs              map[segment.Key]struct{}
}

// Serves reports whether a claim of a team may go to an Env of the cluster.
func (s *Scope) Serves(team string, env segment.Key) bool {
	return s == nil || within(s.Namespaces, env.Namespace) && within(s.Teams, team) && within(s.Envs, env)
}

func within[K comparable](set map[K]struct{}, one K) bool {
	_, in := set[one]
	return in || len(set) == 0
}

// SetScope changes what the cluster may serve, for all views at once; nil: everything.
func (c *Cluster) SetScope(s *Scope) { c.scope.Store(s) }

// Serves reports whether a claim of a team may go to an Env of the cluster.
func (c *Cluster) Serves(team string, env segment.Key) bool { return c.scope.Load().Serves(team, env) }

// Given reports whether the cluster was given an Env, for some team.
func (c *Cluster) Given(env segment.Key) bool {
	s := c.scope.Load()
	return s == nil || within(s.Namespaces, env.Namespace) && within(s.Envs, env)
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
	Index    int           // of the member in its segment
	InFlight *atomic.Int32 // claims that the member's counts do not cover yet; nil counts as 0
}

// Member returns the candidate's member.
func (c Candidate) Member() *segment.Member { return &c.Segment.Members()[c.Index] }

// View is one Env as the router sees it: immutable, except for the health of clusters and the claims in flight, which it refers
// to.
type View struct {
	// hot is what every pick reads, two candidates per cache line; ordered by cluster, then name, like segments, which hold the
	// rest. Both lie directly behind the view where they fit; because that saves a memory access.
	hot      []hot
	segments []*segment.Segment
}

type (
	room1 struct {
		hot      [1]hot
		segments [1]*segment.Segment
	}
	room2 struct {
		hot      [2]hot
		segments [2]*segment.Segment
	}
	room4 struct {
		hot      [4]hot
		segments [4]*segment.Segment
	}
	room8 struct {
		hot      [8]hot
		segments [8]*segment.Segment
	}
)

// newView is an empty view with room behind it: only as much as needed, because a hub has one for every Env.
func newView(candidates int) *View {
	switch {
	case candidates <= 1:
		return withRoom(func(r *room1) ([]hot, []*segment.Segment) { return r.hot[:0], r.segments[:0] })
	case candidates <= 2:
		return withRoom(func(r *room2) ([]hot, []*segment.Segment) { return r.hot[:0], r.segments[:0] })
	case candidates <= 4:
		return withRoom(func(r *room4) ([]hot, []*segment.Segment) { return r.hot[:0], r.segments[:0] })
	case candidates <= 8:
		return withRoom(func(r *room8) ([]hot, []*segment.Segment) { return r.hot[:0], r.segments[:0] })
	default:
		return &View{hot: make([]hot, 0, candidates), segments: make([]*segment.Segment, 0, candidates)}
	}
}

func withRoom[R any](of func(*R) ([]hot, []*segment.Segment)) *View {
	v := &struct {
		View
		room R
	}{}
	v.hot, v.segments = of(&v.room)
	return &v.View
}

type hot struct {
	cluster  *Cluster
	inFlight *atomic.Int32
	room     int32 // places left in the queue
	priority int32
	ready    uint16 // idle Pods, capped, as are the two that follow
	claiming uint16 // Pods of claims in flight, which ready is without
	waiting  uint16 // claims in the queue
	member   uint8  // its place in the segment
	flags    uint8
}

const (
	flagSaturated = 1 << iota
	flagCanGrow
	flagDefaultShape // a request without shape may go here
	flagUsable       // the member's state lets it serve
)

var (
	none     atomic.Int32
	anything Request
)

// NewView keeps what the candidates refer to, and may reorder them.
func NewView(candidates []Candidate) *View {
	if !slices.IsSortedFunc(candidates, compareNames) {
		slices.SortFunc(candidates, compareNames)
	}
	v := newView(len(candidates))
	for _, c := range candidates {
		v.hot, v.segments = append(v.hot, newHot(c, nil, nil)), append(v.segments, c.Segment)
	}
	return v
}

// Replace returns a view like v in which others replace the candidates from at on. Their names are the same.
func (v *View) Replace(at int, candidates []Candidate) *View {
	next := newView(len(v.hot))
	next.hot, next.segments = append(next.hot, v.hot...), append(next.segments, v.segments...)
	for i, c := range candidates {
		next.hot[at+i], next.segments[at+i] = newHot(c, &v.hot[at+i], v.segments[at+i]), c.Segment
	}
	return next
}

// newHot may get the member's previous entry, from which it takes what depends on its shape.
func newHot(c Candidate, was *hot, of *segment.Segment) hot {
	m := c.Member()
	h := hot{cluster: c.Cluster, inFlight: c.InFlight, claiming: m.Claiming, member: uint8(c.Index), flags: flagsOf(m)}
	h.ready, h.waiting = capped(m.ReadyIdle), capped(m.Pending)
	h.room = int32(max(math.MinInt32/2, int64(m.QueueCapacity)-int64(m.Pending)))
	if h.inFlight == nil {
		h.inFlight = &none
	}
	if was != nil && of.Defaults == c.Segment.Defaults && of.Members()[was.member].Shape == m.Shape {
		h.priority, h.flags = was.priority, h.flags|was.flags&flagDefaultShape
		return h
	}
	shape := m.Shape.Get()
	h.priority = shape.Priority
	if shapeMismatch(&anything, &shape, c.Segment) == "" {
		h.flags |= flagDefaultShape
	}
	return h
}

func capped(n int32) uint16 { return uint16(min(math.MaxUint16, max(0, n))) }

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
	return cmp.Or(cmp.Compare(a.Cluster.ID, b.Cluster.ID), cmp.Compare(a.Member().Name, b.Member().Name))
}

// Len is the number of candidates.
func (v *View) Len() int {
	if v == nil {
		return 0
	}
	return len(v.hot)
}

// Candidate returns the candidate at the index in a Decision.
func (v *View) Candidate(i int) Candidate {
	h := &v.hot[i]
	out := Candidate{Cluster: h.cluster, Segment: v.segments[i], Index: int(h.member), InFlight: h.inFlight}
	if out.InFlight == &none {
		out.InFlight = nil
	}
	return out
}
