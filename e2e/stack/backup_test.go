// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestHolds(t *testing.T) {
	const canary = "canary-7f3a9c"
	for before := range 5 {
		for after := range 5 {
			text := strings.Repeat("x", before) + canary + strings.Repeat("y", after)
			if written := base64.StdEncoding.EncodeToString([]byte(text)); !Holds([]byte(text), canary) || !Holds([]byte(written), canary) {
				t.Errorf("%q is not found in %q, or not in %q", canary, text, written)
			}
		}
	}
	if other := "canary-7f3a9d"; Holds([]byte(other), canary) || Holds([]byte(base64.StdEncoding.EncodeToString([]byte(other))), canary) {
		t.Errorf("%q is found in %q", canary, other)
	}
}
