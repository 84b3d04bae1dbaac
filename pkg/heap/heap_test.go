// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestRelaxHeedsGOGC(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "100")
	Relax()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("with GOGC set: %d, want it left alone", got)
	}
	t.Setenv("GOGC", "")
	Relax()
	if got := debug.SetGCPercent(100); got != percent {
		t.Errorf("without GOGC: %d, want %d", got, percent)
	}
}

func TestChoose(t *testing.T) {
	const mb = 1 << 20
	for live, want := range map[uint64]int{0: percent, 2 * mb: percent, 6 * mb: percent, 24 * mb: 100, 50 * mb: 25, 1000 * mb: leastPercent} {
		if got := choose(live, 24*mb); got != want {
			t.Errorf("%d bytes held: %d %%, want %d", live, got, want)
		}
	}
}

// TestRelaxWithin holds more than fits, lets go of it, and wants both noticed.
func TestRelaxWithin(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "")
	tuned := &tuner{room: 4 << 20, percent: percent}
	changed := make(chan int, 100)
	tuned.set = func(p int) { changed <- p }
	tuned.arm()
	held := make([]byte, 64<<20)
	await := func(what string, good func(p int) bool) {
		deadline := time.After(10 * time.Second)
		for {
			runtime.GC()
			select {
			case p := <-changed:
				if good(p) {
					return
				}
			case <-deadline:
				t.Fatal(what)
			default:
			}
		}
	}
	await("the heap that grew was not noticed", func(p int) bool { return p == leastPercent })
	runtime.KeepAlive(held) // and no longer
	await("the heap that shrank was not noticed", func(p int) bool { return p > leastPercent })
}
