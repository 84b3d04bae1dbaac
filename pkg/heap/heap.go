// SPDX-License-Identifier: Apache-2.0

// Package heap trades memory for processor time. A claim leaves much garbage on a heap that is small, and with Go's default
// the collector runs so often that it takes a good part of what claims have; on a machine that the API server fills as
// well, that is latency.
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
	// leastPercent keeps a big heap from being collected all the time.
	leastPercent = 25
)

// Relax makes collections rarer, unless GOGC says otherwise. GOMEMLIMIT, which a container should have, still holds.
func Relax() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// RelaxWithin is Relax for a heap of which much is held: garbage takes room bytes at the most, or a quarter of what is held
// where that is more. A heap that is collected again and again, although what is held does not grow, gets more, up to
// maxFactor times as much, until it is collected less than every eight seconds: a collection of tens of megabytes delays what
// runs beside it by milliseconds, and a hub whose clusters report all the time would have several a second.
func RelaxWithin(room uint64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(percent)
	t := &tuner{room: room, percent: percent, now: time.Now, set: func(percent int) { debug.SetGCPercent(percent) }}
	t.pace.factor = 1
	t.arm()
}

// tuner looks again after every collection: that is when it is known what is held.
type tuner struct {
	room    uint64
	percent int
	pace    pace
	now     func() time.Time
	set     func(percent int)
}

// arm leaves behind what the next collection finds; without a pointer in it, it might share memory with what stays.
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

// choose rounds, so that a heap which hardly changes is left alone.
func choose(live, room uint64) int {
	const step = 25
	p := int(100 * room / max(live, 1) / step * step)
	return min(max(p, leastPercent), percent)
}

const (
	// A heap is collected often if that is less than often apart for as long as lasting; a gap of more than seldom is enough to
	// take room back. They are more than twofold apart, or the factor would go to and fro. A collection of a hub with 1000
	// clusters takes 50 ms of both of two processors: every 5 s it would be what the slowest hundredth of claims sees.
	often, lasting = 8 * time.Second, 2 * time.Second
	seldom         = 40 * time.Second
	maxFactor      = 8
)

// pace is how often a heap is collected.
type pace struct {
	factor      int
	since, last time.Time // the first and the last collection of those that were less than often apart
	live        uint64    // after the first
}

// collected notes a collection. A heap that fills is left alone: it is collected often for as long as that takes.
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
