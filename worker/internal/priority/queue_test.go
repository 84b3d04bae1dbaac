// SPDX-License-Identifier: Apache-2.0

package priority

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type thing struct{ rank, place int }

// TestQueue compares the queue with a slice that is sorted each time.
func TestQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	q := New(func(a, b *thing) bool { return a.rank < b.rank }, func(x *thing) *int { return &x.place })
	var naive []*thing
	for step := range 3000 {
		switch r.IntN(4) {
		case 0, 1:
			x := &thing{rank: r.IntN(100), place: None}
			q.Push(x)
			naive = append(naive, x)
		case 2:
			if len(naive) > 0 {
				x := naive[r.IntN(len(naive))]
				x.rank = r.IntN(100)
				q.Fix(x)
			}
		case 3:
			if len(naive) > 0 {
				i := r.IntN(len(naive))
				q.Remove(naive[i])
				if naive[i].place != None {
					t.Fatalf("step %d: what was taken out is at %d", step, naive[i].place)
				}
				naive = slices.Delete(naive, i, i+1)
			}
		}
		first, ok := q.First()
		if ok != (len(naive) > 0) || q.Len() != len(naive) {
			t.Fatalf("step %d: %d items, first %t, want %d", step, q.Len(), ok, len(naive))
		}
		if ok && first.rank != slices.MinFunc(naive, func(a, b *thing) int { return a.rank - b.rank }).rank {
			t.Fatalf("step %d: the first has rank %d", step, first.rank)
		}
	}
}
