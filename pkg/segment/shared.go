// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"strings"
	"time"
	"unique"

	"github.com/google/uuid"
)

// Shared is a value that thousands of segments have in common and that is stored only once. Two are equal if their values are. The zero
// value is that of T.
type Shared[T comparable] struct{ handle unique.Handle[T] }

// Share returns the shared form of a value.
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

// Shape is the part of a member that does not change with its counts.
type Shape struct {
	InstanceType string
	ScalingGroup string
	Image        string
	Multiplier   int32
	Priority     int32
	// StartupTimeout is the default for claims without one; 0 if the pool has none.
	StartupTimeout time.Duration
}

// Defaults is the part of a segment that applies to all its members.
type Defaults struct {
	Template     string
	InstanceType string
	Multiplier   int32
	// Fault is what a person must fix before all members can serve; empty: nothing is known.
	Fault string
	// Named are the clusters in which the Env has members, in order, separated by commas; empty: no other cluster. The list includes the
	// segment's own cluster, so that all clusters of an Env share the string.
	Named string

	uid string // uid of the Env, if it does not fit into Segment.uid
}

// uid stores a canonical UUID, as API servers assign them, in less than half of the memory of its text.
type uid uuid.UUID

const uidLength = 36

// parseUID parses a UUID. It returns false if the text is not the canonical form.
func parseUID(text string) (uid, bool) {
	if len(text) != uidLength || strings.ToLower(text) != text {
		return uid{}, false
	}
	u, err := uuid.Parse(text)
	if err != nil || u == uuid.Nil { // after an error, u is what was parsed before the error
		return uid{}, false
	}
	return uid(u), true
}

// is reports whether text is the canonical form of the UUID. It takes a third of the time of parsing.
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
