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
	candidates []Candidate // ordered by cluster, then name
	// hot is what every pick reads, two candidates a cache line. It lies behind the view itself where it fits: one place in
	// memory less to wait for.
	hot []hot
}

// newView is an empty view with room behind it: as much as is needed, since a hub has one for every Env.
func newView(candidates int) *View {
	switch {
	case candidates <= 1:
		v := &struct {
			View
			room [1]hot
		}{}
		v.hot = v.room[:0]
		return &v.View
	case candidates <= 2:
		v := &struct {
			View
			room [2]hot
		}{}
		v.hot = v.room[:0]
		return &v.View
	case candidates <= 4:
		v := &struct {
			View
			room [4]hot
		}{}
		v.hot = v.room[:0]
		return &v.View
	case candidates <= 8:
		v := &struct {
			View
			room [8]hot
		}{}
		v.hot = v.room[:0]
		return &v.View
	default:
		return &View{hot: make([]hot, 0, candidates)}
	}
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

// NewView takes ownership of the candidates.
func NewView(candidates []Candidate) *View {
	if !slices.IsSortedFunc(candidates, compareNames) {
		slices.SortFunc(candidates, compareNames)
	}
	v := newView(len(candidates))
	v.candidates = candidates
	for _, c := range candidates {
		v.hot = append(v.hot, newHot(c))
	}
	return v
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
	return len(v.candidates)
}

// Candidate returns the candidate at an index that a Decision named.
func (v *View) Candidate(i int) Candidate { return v.candidates[i] }
