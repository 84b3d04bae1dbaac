// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Key names a federated Env.
type Key struct {
	Namespace string
	Name      string
}

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Compare orders keys by namespace, then name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// State is what a member's owner says of it.
type State uint8

// The states of a member. Unknown is a state that a newer peer reported and this build has no name for; it is treated
// like Inconsistent: not routed to.
const (
	Unknown State = iota
	Active
	Saturated // cannot grow; it may still serve what is idle
	Missing
	Inconsistent
)

func (s State) String() string {
	switch s {
	case Active:
		return "Active"
	case Saturated:
		return "Saturated"
	case Missing:
		return "Missing"
	case Inconsistent:
		return "Inconsistent"
	default:
		return "Unknown"
	}
}

// Member is one pool of a segment. It is comparable on purpose.
type Member struct {
	Name          string
	InstanceType  string
	ScalingGroup  string
	Image         string
	Multiplier    int32
	Priority      int32
	Idle          int32 // as the API's status counts it, Pods that cannot serve included
	ReadyIdle     int32
	Running       int32
	Desired       int32
	Current       int32
	Pending       int32 // claims waiting
	QueueCapacity int32
	State         State
	CanGrow       bool
	SaturatedFor  time.Duration // remaining; 0 without a time
}

func (m *Member) equal(o *Member) bool {
	a, b := *m, *o
	a.SaturatedFor, b.SaturatedFor = 0, 0
	return a == b
}

// Segment is one cluster's part of one Env. It is immutable once it is in a Snapshot.
type Segment struct {
	Key                 Key
	UID                 string
	Generation          int64
	Template            string
	DefaultInstanceType string
	DefaultMultiplier   int32
	Members             []Member // ordered by name
}

// Equal reports whether two segments say the same, remaining durations aside.
func (s *Segment) Equal(o *Segment) bool {
	return s.Key == o.Key && s.UID == o.UID && s.Generation == o.Generation && s.Template == o.Template &&
		s.DefaultInstanceType == o.DefaultInstanceType && s.DefaultMultiplier == o.DefaultMultiplier &&
		slices.EqualFunc(s.Members, o.Members, func(a, b Member) bool { return a.equal(&b) })
}

// Edge reports whether the change from was to is (either may be nil) is one that others should learn of at once: a member came,
// went or changed its state, or its ready idle Pods came from or to none.
func Edge(was, is *Segment) bool {
	if was == nil || is == nil {
		return was != is
	}
	if len(was.Members) != len(is.Members) {
		return true
	}
	for i := range is.Members {
		a, b := &was.Members[i], &is.Members[i]
		if a.Name != b.Name || (a.ReadyIdle == 0) != (b.ReadyIdle == 0) || a.State != b.State {
			return true
		}
	}
	return false
}

// Totals are sums over members.
type Totals struct {
	Members, Idle, ReadyIdle, Running, Desired, Pending int32
}

// Totals sums the segment's members. A Missing member has no pool, so its counts are left over and don't count.
func (s *Segment) Totals() Totals {
	var t Totals
	for i := range s.Members {
		t.add(&s.Members[i])
	}
	return t
}

func (t *Totals) add(m *Member) {
	t.Members++
	if m.State == Missing {
		return
	}
	t.Idle = sum(t.Idle, m.Idle)
	t.ReadyIdle = sum(t.ReadyIdle, m.ReadyIdle)
	t.Running = sum(t.Running, m.Running)
	t.Desired = sum(t.Desired, m.Desired)
	t.Pending = sum(t.Pending, m.Pending)
}

// Merge sums the totals of one Env over its clusters, or of one cluster over its Envs.
func (t Totals) Merge(o Totals) Totals {
	return Totals{
		Members: t.Members + o.Members, Idle: sum(t.Idle, o.Idle), ReadyIdle: sum(t.ReadyIdle, o.ReadyIdle),
		Running: sum(t.Running, o.Running), Desired: sum(t.Desired, o.Desired), Pending: sum(t.Pending, o.Pending),
	}
}

// sum stays at the most that there can be: counts are what a worker says, and one that wrapped around would be a lie.
func sum(a, b int32) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

// Order is a report's place in its cluster's history. Reports of one cluster are ordered by it and by nothing else;
// resourceVersions of different clusters, or of one cluster before and after a restore, do not compare.
type Order struct {
	Incarnation uint64
	Sequence    uint64
}

// Compare orders by incarnation, then sequence.
func (o Order) Compare(p Order) int {
	return cmp.Or(cmp.Compare(o.Incarnation, p.Incarnation), cmp.Compare(o.Sequence, p.Sequence))
}

// After reports whether o is newer than p. A repeated report is not.
func (o Order) After(p Order) bool { return o.Compare(p) > 0 }
