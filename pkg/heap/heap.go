// SPDX-License-Identifier: Apache-2.0

// Package heap trades memory for processor time. A claim produces much garbage relative to a small heap. With Go's default, the collector
// runs so often that it takes much of the processor time of claims; on a busy machine that adds latency.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// percent lets the heap grow fivefold between collections: 40 MB of live data take 200 MB.
	percent = 400
	// leastPercent prevents constant collection of a big heap.
	leastPercent = 25
)

// Relax makes collections less frequent, unless GOGC is set. GOMEMLIMIT, which a container should set, still applies.
func Relax() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// RelaxWithin is Relax for a heap with much live data: garbage takes at most room bytes, or a quarter of the live data if that is more. If
// collections are frequent although the live data does not grow, the limit is raised, by up to the factor maxFactor, until they are at
// least eight seconds apart. A collection of tens of megabytes delays other work by milliseconds, and a hub with busy clusters would have
// several per second.
func RelaxWithin(room uint64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(percent)
	t := &tuner{room: room, percent: percent, now: time.Now, set: func(percent int) { debug.SetGCPercent(percent) }}
	t.pace.factor = 1
	t.arm()
}

// tuner adjusts the percentage after every collection, when the size of the live data is known.
type tuner struct {
	room    uint64
	percent int
	pace    pace
	now     func() time.Time
	set     func(percent int)
}

// arm registers for the next collection. The allocated object contains a pointer, because otherwise it might share memory with live
// objects.
func (t *tuner) arm() { runtime.AddCleanup(new(*tuner), (*tuner).collected, t) }

func (t *tuner) collected() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	live := sample[0].Value.Uint64()
	t.pace.collected(t.now(), live)
	if p := choose(live, t.room*uint64(t.pace.factor)); p != t.percent {
		t.percent = p
		t.set(p)
	}
	t.arm()
}

// choose returns the percentage. It rounds, so that a nearly constant heap keeps its setting.
func choose(live, room uint64) int {
	const step = 25
	p := int(100 * room / max(live, 1) / step * step)
	return min(max(p, leastPercent), percent)
}

const (
	// Collections are frequent if they are less than often apart for lasting; a gap of more than seldom lowers the limit again.
	// The two differ by more than a factor of two, or the factor would oscillate. A collection of a hub with 1000 clusters
	// takes 50 ms of two processors: every 5 s it would be visible in the slowest hundredth of claims.
	often, lasting = 8 * time.Second, 2 * time.Second
	seldom         = 40 * time.Second
	maxFactor      = 8
)

// pace tracks the frequency of collections.
type pace struct {
	factor      int
	since, last time.Time // first and last of a series of collections that were less than often apart
	live        uint64    // live data after the first
}

// collected records a collection. A growing heap keeps its setting, because it is collected often while it fills.
func (p *pace) collected(now time.Time, live uint64) {
	gap := now.Sub(p.last)
	p.last = now
	if gap > seldom {
		p.factor = max(p.factor/2, 1)
	}
	if gap >= often || live > p.live+p.live/8 {
		p.since, p.live = now, live
		return
	}
	if now.Sub(p.since) >= lasting {
		p.factor = min(2*p.factor, maxFactor)
		p.since, p.live = now, live
	}
}
