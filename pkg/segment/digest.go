// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// digestVersion must change with the encoding below, so that builds with different encodings never agree by chance.
const digestVersion = 1

// Digest is a 64-bit hash of everything that Equal compares, except for Shape.StartupTimeout, Defaults.Fault, Defaults.Named and
// Member.Claiming: a hub that does not know these fields drops them, and would request complete reports endlessly.
func (s *Segment) Digest() uint64 {
	var buf [1024]byte // stays on the stack unless the segment has many members
	return xxhash.Sum64(s.appendCanonical(buf[:0]))
}

// appendCanonical appends every field in a fixed order. Strings are preceded by their length, so that no two segments have the same
// encoding.
func (s *Segment) appendCanonical(b []byte) []byte {
	key, d := s.Key(), s.Defaults.Get()
	b = append(b, digestVersion)
	b = appendString(b, key.Namespace)
	b = appendString(b, key.Name)
	if s.uid == (uid{}) {
		b = appendString(b, d.uid)
	} else {
		b = s.uid.append(binary.AppendUvarint(b, uidLength))
	}
	b = binary.AppendVarint(b, s.Generation)
	b = appendString(b, d.Template)
	b = appendString(b, d.InstanceType)
	b = binary.AppendVarint(b, int64(d.Multiplier))
	members := s.Members()
	b = binary.AppendUvarint(b, uint64(len(members)))
	for i := range members {
		b = members[i].appendCanonical(b)
	}
	return b
}

func (m *Member) appendCanonical(b []byte) []byte {
	shape := m.Shape.Get()
	b = appendString(b, m.Name)
	b = appendString(b, shape.InstanceType)
	b = appendString(b, shape.ScalingGroup)
	b = appendString(b, shape.Image)
	for _, n := range [...]int32{
		shape.Multiplier, shape.Priority, m.Idle, m.ReadyIdle, m.Running, m.Desired, m.Current, m.Pending, m.QueueCapacity,
	} {
		b = binary.AppendVarint(b, int64(n))
	}
	b = append(b, byte(m.State))
	if m.CanGrow {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
