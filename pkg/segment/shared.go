// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"strings"
	"time"
	"unique"

	"github.com/google/uuid"
)

// Shared is a value that thousands of segments have in common, stored once for all of them. Two are equal when their values are.
// The zero value is that of T.
type Shared[T comparable] struct{ handle unique.Handle[T] }

// Share keeps a value.
func Share[T comparable](v T) Shared[T] {
	var zero T
	if v == zero {
		return Shared[T]{}
	}
	return Shared[T]{unique.Make(v)}
}

// Get returns the value.
func (s Shared[T]) Get() (v T) {
	if s == (Shared[T]{}) {
		return v
	}
	return s.handle.Value()
}

// Shape is the part of a member that stays while its counts change.
type Shape struct {
	InstanceType string
	ScalingGroup string
	Image        string
	Multiplier   int32
	Priority     int32
	// StartupTimeout applies to claims without one; 0 if the pool has none.
	StartupTimeout time.Duration
}

// Defaults is the part of a segment that applies to all its members.
type Defaults struct {
	Template     string
	InstanceType string
	Multiplier   int32
	// Fault is what a person must cure before all members can serve; empty: nothing is known.
	Fault string
	// Named are the clusters that the Env has members of, in order, separated by commas; empty: no other cluster. The own one is
	// among them, so that all clusters of an Env share the text.
	Named string

	uid string // of the Env, if it does not fit into uid
}

// uid stores the text of a canonical UUID, as API servers assign them, in less than half of the memory.
type uid uuid.UUID

const uidLength = 36

// parseUID returns false for a text that differs from the UUID's own text.
func parseUID(text string) (uid, bool) {
	if len(text) != uidLength || strings.ToLower(text) != text {
		return uid{}, false
	}
	u, err := uuid.Parse(text)
	if err != nil || u == uuid.Nil { // with an error, u is what was read before it
		return uid{}, false
	}
	return uid(u), true
}

// is reports whether this is the UUID's text, in a third of the time of parsing.
func (u uid) is(text string) bool {
	var room [uidLength]byte
	return u != uid{} && len(text) == uidLength && string(u.append(room[:0])) == text
}

func (u uid) append(b []byte) []byte {
	const digits = "0123456789abcdef"
	for i, x := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			b = append(b, '-')
		}
		b = append(b, digits[x>>4], digits[x&15])
	}
	return b
}
