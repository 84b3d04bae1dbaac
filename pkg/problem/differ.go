// SPDX-License-Identifier: Apache-2.0

package problem

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
)

// Differing returns the JSON names of the fields in which two messages of the same type differ. It returns no values, which may be secret.
func Differing(a, b proto.Message) (names []string) {
	x, y := a.ProtoReflect(), b.ProtoReflect()
	fields := x.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); x.Has(f) != y.Has(f) || !x.Get(f).Equal(y.Get(f)) {
			names = append(names, f.JSONName())
		}
	}
	return names
}

// KeyConflict returns the error for a claim key that was used with other values of these parameters; differ is empty if they are unknown.
func KeyConflict(key string, differ []string) *Error {
	if len(differ) == 0 {
		return New(ClaimKeyConflict, "claim key %q was used with other parameters before; another claim needs another key", key)
	}
	return New(ClaimKeyConflict, "claim key %q was used with another value of %s before; another claim needs another key",
		key, strings.Join(slices.Compact(differ), ", "))
}
