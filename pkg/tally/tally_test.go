// SPDX-License-Identifier: Apache-2.0

package tally

import "testing"

// Each key has its own, and nothing stays of one that has none.
func TestTally(t *testing.T) {
	tally := New[string](2)
	for _, step := range []struct {
		key   string
		leave bool
		want  bool // what Enter reports
		keys  int
	}{
		{key: "a", want: true, keys: 1}, {key: "a", want: true, keys: 1}, {key: "a", keys: 1}, {key: "b", want: true, keys: 2},
		{key: "a", leave: true, keys: 2}, {key: "a", want: true, keys: 2}, {key: "b", leave: true, keys: 1},
		{key: "a", leave: true, keys: 1}, {key: "a", leave: true, keys: 0},
	} {
		if step.leave {
			tally.Leave(step.key)
		} else if got := tally.Enter(step.key); got != step.want {
			t.Errorf("%+v: entered: %t", step, got)
		}
		if n := tally.Len(); n != step.keys {
			t.Errorf("%+v: %d keys", step, n)
		}
	}
}
