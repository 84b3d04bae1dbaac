// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"strings"
	"time"
	"unique"

	"github.com/google/uuid"
)

// Shared is a value that thousands of segments have in common, kept once for all of them. Two are equal when their values
// are. The zero value is that of T.
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

// Shape is what a member stays while its counts change.
type Shape struct {
	InstanceType string
	ScalingGroup string
	Image        string
	Multiplier   int32
	Priority     int32
	// StartupTimeout holds for claims that name none; 0 where the pool says nothing.
	StartupTimeout time.Duration
}

// Defaults is what a segment says of all its members.
type Defaults struct {
	Template     string
	InstanceType string
	Multiplier   int32

	uid string // of the Env, if it is none that uid holds
}

// uid holds the text of a canonical UUID, which is what API servers give to objects, in less than half of the memory.
type uid uuid.UUID

const uidLength = 36

// parseUID reports false for any text that the UUID's own would not be the same as.
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

// is reports whether this is the UUID's text, in a third of the time that parsing takes.
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
