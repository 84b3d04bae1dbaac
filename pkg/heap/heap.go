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
// where that is more.
func RelaxWithin(room uint64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(percent)
	t := &tuner{room: room, percent: percent, set: func(percent int) { debug.SetGCPercent(percent) }}
	t.arm()
}

// tuner looks again after every collection: that is when it is known what is held.
type tuner struct {
	room    uint64
	percent int
	set     func(percent int)
}

// arm leaves behind what the next collection finds; without a pointer in it, it might share memory with what stays.
func (t *tuner) arm() { runtime.AddCleanup(new(*tuner), (*tuner).collected, t) }

func (t *tuner) collected() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if p := choose(sample[0].Value.Uint64(), t.room); p != t.percent {
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
