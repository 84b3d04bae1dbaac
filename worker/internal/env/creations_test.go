// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
)

// I14: an editor whose Envs have many members makes this worker write at a pace, and other namespaces do not wait.
func TestI14PoolsOfANamespaceAreCreatedAtAPace(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Unix(1e9, 0))
	c := newCreations(clk)
	const members = 40
	key := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "greedy", Name: fmt.Sprint("wide-", i)}
	}
	created := map[int]time.Duration{} // when, since the start
	began := clk.Now()
	for len(created) < members {
		next := time.Hour
		for i := range members {
			if _, ok := created[i]; ok {
				continue
			}
			if wait := c.wait(key(i)); wait > 0 {
				next = min(next, wait)
			} else {
				created[i] = clk.Since(began)
			}
		}
		if wait := c.wait(types.NamespacedName{Namespace: fmt.Sprint("other-", len(created)), Name: "pool"}); wait > 0 {
			t.Errorf("another namespace waits %s", wait)
		}
		clk.SetTime(clk.Now().Add(next))
	}
	after := func(d time.Duration) (n int) {
		for _, at := range created {
			if at <= d {
				n++
			}
		}
		return n
	}
	for d, want := range map[time.Duration]int{0: createdAtOnce, time.Second: createdAtOnce + createdPerSecond, 2 * time.Second: members} {
		if got := after(d); got != want {
			t.Errorf("after %s %d pools are created, want %d: %v", d, got, want, created)
		}
	}
	// Members that are removed before they are created, and made again later under the same names.
	const many = 100 * createdPerSecond
	ask := func() (made int) {
		for i := range many {
			if c.wait(key(i)) == 0 {
				made++
			}
		}
		return made
	}
	ask()
	most := int(reservationKept.Seconds()) * createdPerSecond
	if len(c.reservations) > most+1 {
		t.Errorf("%d creations are reserved (I10), want at most %d", len(c.reservations), most)
	}
	clk.SetTime(clk.Now().Add(3 * reservationKept))
	if made := ask(); made > createdAtOnce {
		t.Errorf("%d pools are created at once by old reservations, want at most %d", made, createdAtOnce)
	}
	clk.SetTime(clk.Now().Add(time.Second))
	if made := ask(); made == 0 || made > createdPerSecond+1 {
		t.Errorf("%d pools are created in the next second, want about %d", made, createdPerSecond)
	}
	clk.SetTime(clk.Now().Add(time.Hour))
	c.wait(types.NamespacedName{Namespace: "other", Name: "pool"})
	if len(c.reservations) != 0 || len(c.namespaces) != 1 {
		t.Errorf("an hour later %d reservations and %d namespaces are remembered (I10), want 0 and 1", len(c.reservations), len(c.namespaces))
	}
}
