// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Key identifies a federated Env.
type Key struct {
	Namespace string
	Name      string
}

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Compare orders keys by namespace, then name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// State is the state of a member according to its owner.
type State uint8

// The states of a member. Unknown is a state that a newer peer reported and this build does not know. Like Inconsistent, it gets no claims.
const (
	Unknown State = iota
	Active
	Saturated // cannot grow; it may still serve from idle Pods
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
	Shape         Shared[Shape]
	SaturatedFor  time.Duration // remaining time; 0 if there is none
	Idle          int32         // as counted in the API's status, including Pods that cannot serve
	ReadyIdle     int32
	Running       int32
	Desired       int32
	Current       int32
	Pending       int32 // claims waiting
	QueueCapacity int32
	State         State
	CanGrow       bool
	Claiming      uint16 // the hub's calls whose claims have a Pod, capped to the type
}

// SetClaiming sets Claiming to the nearest value that the type can hold.
func (m *Member) SetClaiming(calls int32) { m.Claiming = uint16(min(max(0, calls), math.MaxUint16)) }

// Free returns how many idle Pods remain after the given number of claims in flight, below 0 if there are too many claims. ReadyIdle does
// not include the Pods of claims that Claiming counts. Free is at most ReadyIdle, because Claiming may include claims that others have in
// flight.
func (m *Member) Free(inFlight int32) int32 { return m.ReadyIdle - max(0, inFlight-int32(m.Claiming)) }

func (m *Member) equal(o *Member) bool {
	a, b := *m, *o
	a.SaturatedFor, b.SaturatedFor = 0, 0
	return a == b
}

// Segment is one cluster's part of one Env. It is immutable once it is in a Snapshot. A hub holds one for every Env and cluster, so
// segments share equal parts.
type Segment struct {
	key        *Key
	uid        uid
	Defaults   Shared[Defaults]
	Generation int64
	one        [1]Member // the most common number of members needs no separate allocation
	members    *[]Member // nil: there is one member, or none if its name is empty
}

// New returns an empty segment of an Env.
func New(key Key) *Segment { return &Segment{key: &key} }

// Key returns the key of the Env.
func (s *Segment) Key() Key {
	if s.key == nil {
		return Key{}
	}
	return *s.key
}

// Bare returns an empty segment of the same Env.
func (s *Segment) Bare() *Segment { return &Segment{key: s.key} }

// SharedKey returns the stored key, for holders of many keys. The caller must not modify it.
func (s *Segment) SharedKey() *Key { return s.key }

// UID returns the uid of the Env.
func (s *Segment) UID() string {
	if s.uid == (uid{}) {
		return s.Defaults.Get().uid
	}
	return string(s.uid.append(nil))
}

// Describe sets all fields except the members, and returns the segment. It must be called before the segment is in a Snapshot.
func (s *Segment) Describe(uid string, generation int64, d Defaults) *Segment {
	var canonical bool
	if s.uid, canonical = parseUID(uid); canonical {
		uid = ""
	}
	d.uid = uid
	s.Defaults, s.Generation = Share(d), generation
	return s
}

// Members returns the members, ordered by name.
func (s *Segment) Members() []Member {
	switch {
	case s.members != nil:
		return *s.members
	case s.one[0].Name == "":
		return nil
	default:
		return s.one[:]
	}
}

// With sets the members, and returns the segment. It must be called before the segment is in a Snapshot.
func (s *Segment) With(members ...Member) *Segment {
	s.members = nil
	room := s.room(len(members))
	copy(room, members)
	if len(room) != 1 {
		s.one = [1]Member{}
	}
	order(room)
	return s
}

// room returns storage for n members.
func (s *Segment) room(n int) []Member {
	switch n {
	case 0:
		return nil
	case 1:
		return s.one[:]
	default:
		members := make([]Member, n)
		s.members = &members
		return members
	}
}

func order(members []Member) {
	byName := func(a, b Member) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(members, byName) {
		slices.SortFunc(members, byName)
	}
}

// Equal reports whether two segments are equal, except for remaining durations.
func (s *Segment) Equal(o *Segment) bool {
	return (s.key == o.key || s.Key() == o.Key()) && s.uid == o.uid && s.Defaults == o.Defaults && s.Generation == o.Generation &&
		slices.EqualFunc(s.Members(), o.Members(), func(a, b Member) bool { return a.equal(&b) })
}

// Edge reports whether other clusters must learn immediately of the change from was to is, either of which may be nil: a member appeared,
// disappeared or changed its state, or its number of ready idle Pods rose from zero or fell to zero.
func Edge(was, is *Segment) bool {
	if was == nil || is == nil {
		return was != is
	}
	before, now := was.Members(), is.Members()
	if len(before) != len(now) {
		return true
	}
	for i := range now {
		a, b := &before[i], &now[i]
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

// Totals returns the sums over the segment's members. It omits a Missing member, which has no pool, so that its counts are stale.
func (s *Segment) Totals() Totals {
	var t Totals
	members := s.Members()
	for i := range members {
		t.add(&members[i])
	}
	return t
}

func (t *Totals) add(m *Member) {
	t.Members++
	if m.State == Missing {
		return
	}
	t.Idle = Sum(t.Idle, m.Idle)
	t.ReadyIdle = Sum(t.ReadyIdle, m.ReadyIdle)
	t.Running = Sum(t.Running, m.Running)
	t.Desired = Sum(t.Desired, m.Desired)
	t.Pending = Sum(t.Pending, m.Pending)
}

// Merge adds the totals of another cluster of the same Env, or of another Env of the same cluster.
func (t Totals) Merge(o Totals) Totals {
	return Totals{
		Members: t.Members + o.Members, Idle: Sum(t.Idle, o.Idle), ReadyIdle: Sum(t.ReadyIdle, o.ReadyIdle),
		Running: Sum(t.Running, o.Running), Desired: Sum(t.Desired, o.Desired), Pending: Sum(t.Pending, o.Pending),
	}
}

// Sum adds with saturation: counts come from workers and from specs without a ceiling, and a sum must not overflow.
func Sum(a, b int32) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

// Order is the position of a report in its cluster's history, and the only way to order reports of one cluster. The resourceVersions of
// different clusters, or of one cluster before and after a restore, are not comparable.
type Order struct {
	Incarnation uint64
	Sequence    uint64
}

// Compare orders by incarnation, then sequence.
func (o Order) Compare(p Order) int {
	return cmp.Or(cmp.Compare(o.Incarnation, p.Incarnation), cmp.Compare(o.Sequence, p.Sequence))
}

// After reports whether o is newer than p. A repetition is not newer.
func (o Order) After(p Order) bool { return o.Compare(p) > 0 }
