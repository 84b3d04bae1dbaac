// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"
	"time"
	"unique"

	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// ErrInvalid means that a message is one that no correct owner sends.
var ErrInvalid = errors.New("invalid segment")

// KeyFromProto parses an Env's key. Both parts are required and must be DNS names.
func KeyFromProto(k *federationv1.EnvKey) (Key, error) {
	key := keyOf(k)
	return key, key.Check()
}

func keyOf(k *federationv1.EnvKey) Key { return Key{Namespace: k.GetNamespace(), Name: k.GetName()} }

// Is reports whether p is the wire format of this key. It is cheaper than parsing p.
func (k Key) Is(p *federationv1.EnvKey) bool { return k == keyOf(p) }

// Check returns an error if no Env can have the key.
func (k Key) Check() error {
	if err := checkName("namespace", k.Namespace); err != nil {
		return err
	}
	return checkName("name", k.Name)
}

// Intern returns the key with its namespace string shared with equal ones that were interned since the last garbage collection.
func (k Key) Intern() Key { return Key{Namespace: unique.Make(k.Namespace).Value(), Name: k.Name} }

// Proto returns the wire format of the key.
func (k Key) Proto() *federationv1.EnvKey {
	return &federationv1.EnvKey{Namespace: k.Namespace, Name: k.Name}
}

// FromProto parses a segment. It orders members by name, whatever their order on the wire.
func FromProto(p *federationv1.EnvSegment) (*Segment, error) {
	key, err := KeyFromProto(p.GetKey())
	if err != nil {
		return nil, err
	}
	return Update(p, New(key))
}

// Update is FromProto with an earlier segment of the Env, the segment of another cluster, or at least one with the key. It reuses the parts
// of was that are equal: comparing is cheaper than allocating, and most reports change only counts.
func Update(p *federationv1.EnvSegment, was *Segment) (*Segment, error) {
	if err := checkSize(p); err != nil {
		return nil, fmt.Errorf("%s: %w", was.Key(), err)
	}
	if err := checkNamed(p.GetNamed(), was.Defaults.Get().Named); err != nil {
		return nil, fmt.Errorf("%s: %w", was.Key(), err)
	}
	s := &Segment{key: was.key}
	s.describe(p, was)
	before, members := was.Members(), s.room(len(p.GetMembers()))
	for i, m := range p.GetMembers() {
		like := &none
		if i < len(before) {
			like = &before[i]
		}
		if err := checkMember(m, like.Name); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Key(), err)
		}
		members[i] = memberFromProto(m, like)
	}
	order(members)
	for i := 1; i < len(members); i++ {
		if members[i].Name == members[i-1].Name {
			return nil, fmt.Errorf("%s: %w: member %q is named twice", s.Key(), ErrInvalid, members[i].Name)
		}
	}
	return s, nil
}

func (s *Segment) describe(p *federationv1.EnvSegment, was *Segment) {
	d, u := was.Defaults.Get(), was.uid
	known := u.is(p.GetUid())
	if !known {
		u, known = parseUID(p.GetUid())
	}
	if known && d.uid == "" && d.Template == p.GetTemplate() && d.InstanceType == p.GetDefaultInstanceType() &&
		d.Multiplier == p.GetDefaultMultiplier() && d.Fault == p.GetFault() && d.Named == p.GetNamed() {
		s.uid, s.Defaults, s.Generation = u, was.Defaults, p.GetGeneration()
		return
	}
	s.Describe(p.GetUid(), p.GetGeneration(), Defaults{
		Template: p.GetTemplate(), InstanceType: p.GetDefaultInstanceType(), Multiplier: p.GetDefaultMultiplier(),
		Fault: p.GetFault(), Named: p.GetNamed(),
	})
}

// Proto returns the wire format of the segment.
func (s *Segment) Proto() *federationv1.EnvSegment {
	d := s.Defaults.Get()
	return &federationv1.EnvSegment{
		Key:                 s.Key().Proto(),
		Uid:                 s.UID(),
		Generation:          s.Generation,
		Template:            d.Template,
		DefaultInstanceType: d.InstanceType,
		DefaultMultiplier:   d.Multiplier,
		Members:             s.MembersProto(),
		Fault:               d.Fault,
		Named:               d.Named,
	}
}

// MembersProto returns the wire format of the members, which is all that foreign segments carry.
func (s *Segment) MembersProto() []*federationv1.MemberSegment {
	members := s.Members()
	out := make([]*federationv1.MemberSegment, 0, len(members))
	for i := range members {
		out = append(out, members[i].Proto())
	}
	return out
}

var none Member

// MembersFromProto parses the members of a foreign segment.
func MembersFromProto(ps []*federationv1.MemberSegment) ([]Member, error) {
	if err := checkSize(&federationv1.EnvSegment{Members: ps}); err != nil {
		return nil, err
	}
	out := make([]Member, 0, len(ps))
	for _, p := range ps {
		if err := checkMember(p, ""); err != nil {
			return nil, err
		}
		out = append(out, memberFromProto(p, &none))
	}
	return out, nil
}

// memberFromProto parses one member. It reads negative counts, which no owner reports, as 0.
func memberFromProto(p *federationv1.MemberSegment, was *Member) Member {
	name := was.Name
	if name != p.GetName() {
		name = p.GetName()
	}
	m := Member{
		Name:          name,
		Shape:         shapeFromProto(p, was.Shape),
		Idle:          max(0, p.GetIdle()),
		ReadyIdle:     max(0, p.GetReadyIdle()),
		Running:       max(0, p.GetRunning()),
		Desired:       max(0, p.GetDesired()),
		Current:       max(0, p.GetCurrent()),
		Pending:       max(0, p.GetPending()),
		QueueCapacity: max(0, p.GetQueueCapacity()),
		State:         stateFromProto(p.GetState()),
		CanGrow:       p.GetCanGrow(),
		SaturatedFor:  positive(p.GetSaturatedFor()),
	}
	m.SetClaiming(p.GetClaiming())
	return m
}

func shapeFromProto(p *federationv1.MemberSegment, was Shared[Shape]) Shared[Shape] {
	s := Shape{
		InstanceType: p.GetInstanceType(), ScalingGroup: p.GetScalingGroup(), Image: p.GetImage(),
		Multiplier: p.GetMultiplier(), Priority: p.GetPriority(), StartupTimeout: positive(p.GetStartupTimeout()),
	}
	if s == was.Get() {
		return was
	}
	return Share(s)
}

// Proto returns the wire format of the member.
func (m *Member) Proto() *federationv1.MemberSegment {
	shape := m.Shape.Get()
	p := &federationv1.MemberSegment{
		Name:          m.Name,
		InstanceType:  shape.InstanceType,
		Multiplier:    shape.Multiplier,
		ScalingGroup:  shape.ScalingGroup,
		Priority:      shape.Priority,
		State:         federationv1.MemberState(m.State),
		Idle:          m.Idle,
		ReadyIdle:     m.ReadyIdle,
		Running:       m.Running,
		Desired:       m.Desired,
		Current:       m.Current,
		Pending:       m.Pending,
		QueueCapacity: m.QueueCapacity,
		CanGrow:       m.CanGrow,
		Image:         shape.Image,
		Claiming:      int32(m.Claiming),
	}
	if shape.StartupTimeout > 0 {
		p.StartupTimeout = durationpb.New(shape.StartupTimeout)
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

func positive(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return max(0, d.AsDuration())
}
