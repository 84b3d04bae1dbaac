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

func TestPace(t *testing.T) {
	const mb = 1 << 20
	now, p := time.Time{}, pace{factor: 1}
	collect := func(n int, every time.Duration, live uint64) int {
		for range n {
			now = now.Add(every)
			p.collected(now, live)
		}
		return p.factor
	}
	for live := uint64(1); live < 1000; live += live/4 + 1 { // it fills
		collect(2, lasting/2, live*mb)
	}
	if p.factor != 1 {
		t.Errorf("factor %d for a heap that fills", p.factor)
	}
	collect(1, 2*seldom, 100*mb)
	for i, c := range []struct {
		every time.Duration
		n     int
		want  int
	}{
		{700 * time.Millisecond, 2, 1}, // not for long
		{700 * time.Millisecond, 1, 2},
		{700 * time.Millisecond, 9, 8},
		{700 * time.Millisecond, 24, 8}, // the most
		{often + time.Second, 10, 8},    // neither often nor seldom
		{seldom + time.Second, 1, 4},
		{seldom + time.Second, 3, 1},
		{seldom - time.Second, 10, 1},
	} {
		if got := collect(c.n, c.every, 100*mb); got != c.want {
			t.Errorf("step %d, %d collections %s apart: factor %d, want %d", i, c.n, c.every, got, c.want)
		}
	}
}

// TestRelaxWithin holds more than fits, releases it, and checks that both are noticed.
func TestRelaxWithin(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "")
	tuned := &tuner{room: 4 << 20, percent: percent, now: time.Now}
	tuned.pace.factor = 1
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
