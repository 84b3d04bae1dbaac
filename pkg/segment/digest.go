// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// digestVersion changes when the encoding below does, so that two builds which disagree about it never agree by chance.
const digestVersion = 1

// Digest is a 64-bit hash of everything that Equal compares.
func (s *Segment) Digest() uint64 {
	var buf [1024]byte // stays on the stack; a segment of many members outgrows it
	return xxhash.Sum64(s.appendCanonical(buf[:0]))
}

// appendCanonical writes every field in a fixed order; strings carry their length, so that no two segments share an
// encoding.
func (s *Segment) appendCanonical(b []byte) []byte {
	b = append(b, digestVersion)
	b = appendString(b, s.Key.Namespace)
	b = appendString(b, s.Key.Name)
	b = appendString(b, s.UID)
	b = binary.AppendVarint(b, s.Generation)
	b = appendString(b, s.Template)
	b = appendString(b, s.DefaultInstanceType)
	b = binary.AppendVarint(b, int64(s.DefaultMultiplier))
	b = binary.AppendUvarint(b, uint64(len(s.Members)))
	for i := range s.Members {
		b = s.Members[i].appendCanonical(b)
	}
	return b
}

func (m *Member) appendCanonical(b []byte) []byte {
	b = appendString(b, m.Name)
	b = appendString(b, m.InstanceType)
	b = appendString(b, m.ScalingGroup)
	b = appendString(b, m.Image)
	for _, n := range [...]int32{
		m.Multiplier, m.Priority, m.Idle, m.ReadyIdle, m.Running, m.Desired, m.Current, m.Pending, m.QueueCapacity,
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
