// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
	"unique"

	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// ErrInvalid is a message that no correct owner sends.
var ErrInvalid = errors.New("invalid segment")

// KeyFromProto reads an Env's key. Both parts are required.
func KeyFromProto(k *federationv1.EnvKey) (Key, error) {
	if k.GetNamespace() == "" || k.GetName() == "" {
		return Key{}, fmt.Errorf("%w: key %q/%q is incomplete", ErrInvalid, k.GetNamespace(), k.GetName())
	}
	return Key{Namespace: k.GetNamespace(), Name: k.GetName()}, nil
}

// Intern shares the memory of the key's strings with that of equal ones.
func (k Key) Intern() Key { return Key{Namespace: intern(k.Namespace), Name: intern(k.Name)} }

// Proto is the wire form of the key.
func (k Key) Proto() *federationv1.EnvKey {
	return &federationv1.EnvKey{Namespace: k.Namespace, Name: k.Name}
}

// FromProto reads a segment. Members come out ordered by name, whatever their order on the wire.
func FromProto(p *federationv1.EnvSegment) (*Segment, error) {
	key, err := KeyFromProto(p.GetKey())
	if err != nil {
		return nil, err
	}
	return Update(p, &Segment{Key: key.Intern()})
}

// Update is FromProto for a segment of which an earlier one, or at least the key, is there already. It takes its strings from
// that where they are the same: comparing is cheaper than interning, and most reports change nothing but counts.
func Update(p *federationv1.EnvSegment, was *Segment) (*Segment, error) {
	key := was.Key
	s := newSegment(len(p.GetMembers()))
	s.Key = key
	s.UID = keep(was.UID, p.GetUid())
	s.Generation = p.GetGeneration()
	s.Template = same(was.Template, p.GetTemplate())
	s.DefaultInstanceType = same(was.DefaultInstanceType, p.GetDefaultInstanceType())
	s.DefaultMultiplier = p.GetDefaultMultiplier()
	for i, m := range p.GetMembers() {
		var before Member
		if i < len(was.Members) {
			before = was.Members[i]
		}
		s.Members = append(s.Members, memberFromProto(m, &before))
	}
	byName := func(a, b Member) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(s.Members, byName) {
		slices.SortFunc(s.Members, byName)
	}
	for i := range s.Members {
		if s.Members[i].Name == "" {
			return nil, fmt.Errorf("%w: %s has a member without a name", ErrInvalid, key)
		}
		if i > 0 && s.Members[i].Name == s.Members[i-1].Name {
			return nil, fmt.Errorf("%w: %s names member %q twice", ErrInvalid, key, s.Members[i].Name)
		}
	}
	return s, nil
}

// Proto is the wire form of the segment.
func (s *Segment) Proto() *federationv1.EnvSegment {
	return &federationv1.EnvSegment{
		Key:                 s.Key.Proto(),
		Uid:                 s.UID,
		Generation:          s.Generation,
		Template:            s.Template,
		DefaultInstanceType: s.DefaultInstanceType,
		DefaultMultiplier:   s.DefaultMultiplier,
		Members:             s.MembersProto(),
	}
}

// MembersProto is the wire form of the members alone, as foreign segments carry them.
func (s *Segment) MembersProto() []*federationv1.MemberSegment {
	out := make([]*federationv1.MemberSegment, 0, len(s.Members))
	for i := range s.Members {
		out = append(out, s.Members[i].Proto())
	}
	return out
}

// MemberFromProto reads one member. Negative counts, which no owner has, read as 0.
func MemberFromProto(p *federationv1.MemberSegment) Member { return memberFromProto(p, &Member{}) }

func memberFromProto(p *federationv1.MemberSegment, was *Member) Member {
	return Member{
		Name:          same(was.Name, p.GetName()),
		InstanceType:  same(was.InstanceType, p.GetInstanceType()),
		ScalingGroup:  same(was.ScalingGroup, p.GetScalingGroup()),
		Image:         same(was.Image, p.GetImage()),
		Multiplier:    p.GetMultiplier(),
		Priority:      p.GetPriority(),
		Idle:          max(0, p.GetIdle()),
		ReadyIdle:     max(0, p.GetReadyIdle()),
		Running:       max(0, p.GetRunning()),
		Desired:       max(0, p.GetDesired()),
		Current:       max(0, p.GetCurrent()),
		Pending:       max(0, p.GetPending()),
		QueueCapacity: max(0, p.GetQueueCapacity()),
		State:         stateFromProto(p.GetState()),
		CanGrow:       p.GetCanGrow(),
		SaturatedFor:  remaining(p.GetSaturatedFor()),
	}
}

// Proto is the wire form of the member.
func (m *Member) Proto() *federationv1.MemberSegment {
	p := &federationv1.MemberSegment{
		Name:          m.Name,
		InstanceType:  m.InstanceType,
		Multiplier:    m.Multiplier,
		ScalingGroup:  m.ScalingGroup,
		Priority:      m.Priority,
		State:         federationv1.MemberState(m.State),
		Idle:          m.Idle,
		ReadyIdle:     m.ReadyIdle,
		Running:       m.Running,
		Desired:       m.Desired,
		Current:       m.Current,
		Pending:       m.Pending,
		QueueCapacity: m.QueueCapacity,
		CanGrow:       m.CanGrow,
		Image:         m.Image,
	}
	if m.SaturatedFor > 0 {
		p.SaturatedFor = durationpb.New(m.SaturatedFor)
	}
	return p
}

func stateFromProto(s federationv1.MemberState) State {
	if s < 0 || s > federationv1.MemberState_INCONSISTENT {
		return Unknown
	}
	return State(s)
}

func remaining(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return max(0, d.AsDuration())
}

// intern shares the memory of strings that thousands of members have in common, such as images and namespaces.
func intern(s string) string {
	if s == "" {
		return ""
	}
	return unique.Make(s).Value()
}

// keep prefers the string that is held already.
func keep(held, s string) string {
	if held == s {
		return held
	}
	return s
}

// same interns, unless the string that is held already says it.
func same(held, s string) string {
	if held == s {
		return held
	}
	return intern(s)
}

// newSegment makes room for the members; for one, which is the most frequent, in the same piece of memory.
func newSegment(members int) *Segment {
	if members == 1 {
		s := &struct {
			Segment
			one [1]Member
		}{}
		s.Members = s.one[:0]
		return &s.Segment
	}
	return &Segment{Members: make([]Member, 0, members)}
}
