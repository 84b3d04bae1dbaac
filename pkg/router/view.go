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

// Health is the health of a cluster according to the view's owner.
type Health uint32

// The health states. Silent, NoReceipt and Disconnected clusters are the last choice. From Unreachable on, a cluster gets no claims,
// although a Draining cluster could serve them.
const (
	Fresh Health = iota
	Silent
	NoReceipt
	Disconnected
	Unreachable
	Quarantined
	Draining
)

// LastChoice reports whether the cluster comes after all Fresh ones.
func (h Health) LastChoice() bool { return h > Fresh && h < Unreachable }

// Eligible reports whether the cluster gets any claims.
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

// Cluster is shared by all views with members of it, so that a change of its health does not require a new view.
type Cluster struct {
	ID     string
	health atomic.Uint32
	seen   atomic.Int64
	scope  atomic.Pointer[Scope]
}

// Scope is what a cluster may serve (I15). An empty set allows everything.
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

// SetScope sets what the cluster may serve, for all views at once; nil: everything.
func (c *Cluster) SetScope(s *Scope) { c.scope.Store(s) }

// Serves reports whether a claim of a team may go to an Env of the cluster.
func (c *Cluster) Serves(team string, env segment.Key) bool { return c.scope.Load().Serves(team, env) }

// Given reports whether the cluster may serve an Env for at least one team.
func (c *Cluster) Given(env segment.Key) bool {
	s := c.scope.Load()
	return s == nil || within(s.Namespaces, env.Namespace) && within(s.Envs, env)
}

// NewCluster returns a fresh cluster.
func NewCluster(id string) *Cluster { return &Cluster{ID: id} }

// Health returns the cluster's current health.
func (c *Cluster) Health() Health { return Health(c.health.Load()) }

// SetHealth sets the cluster's health for all views at once.
func (c *Cluster) SetHealth(h Health) { c.health.Store(uint32(h)) }

// Seen returns when the cluster's data was last confirmed, on its owner's monotonic clock.
func (c *Cluster) Seen() time.Duration { return time.Duration(c.seen.Load()) }

// SetSeen records when the cluster's data was confirmed.
func (c *Cluster) SetSeen(at time.Duration) { c.seen.Store(int64(at)) }

// Candidate is a member to which a claim may go.
type Candidate struct {
	Cluster  *Cluster
	Segment  *segment.Segment
	Index    int           // position of the member in its segment
	InFlight *atomic.Int32 // claims in flight that the member's counts do not include yet; nil counts as 0
}

// Member returns the candidate's member.
func (c Candidate) Member() *segment.Member { return &c.Segment.Members()[c.Index] }

// View is the router's view of one Env. It is immutable, except for the health of clusters and the claims in flight, to which it refers.
type View struct {
	// hot is what every Pick reads, two candidates per cache line. It is ordered by cluster, then name, like segments, which hold the rest. If
	// they fit, both are stored directly behind the View, which saves a memory access.
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

// newView returns an empty view with storage behind it, but no more than needed, because a hub has a view for every Env.
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

// hot has 32 bytes, and no room left but in flags.
type hot struct {
	cluster  *Cluster
	inFlight *atomic.Int32
	room     int32 // places left in the queue
	priority int32
	ready    uint16 // idle Pods, capped like the next two fields
	claiming uint16 // Pods of claims in flight, which ready does not include
	waiting  uint16 // claims in the queue
	member   uint8  // position of the member in its segment
	flags    uint8
}

const (
	flagSaturated = 1 << iota
	flagCanGrow
	flagDefaultShape // a request without a shape may use this member
	flagUsable       // the member's state allows it to serve
)

var (
	none     atomic.Int32
	anything Request
)

// NewView returns a view of the candidates, whose data it retains. It may reorder the slice.
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

// Replace returns a copy of v in which the given candidates replace those from index at on. Their names must be the same.
func (v *View) Replace(at int, candidates []Candidate) *View {
	next := newView(len(v.hot))
	next.hot, next.segments = append(next.hot, v.hot...), append(next.segments, v.segments...)
	for i, c := range candidates {
		next.hot[at+i], next.segments[at+i] = newHot(c, &v.hot[at+i], v.segments[at+i]), c.Segment
	}
	return next
}

// newHot returns the entry of a candidate. It may get the member's previous entry, and then reuses what depends on the member's shape.
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

// Len returns the number of candidates.
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
