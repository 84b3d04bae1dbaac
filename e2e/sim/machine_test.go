// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"sync"
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// machine is a machine's clock: its wall clock has an offset, its monotonic clock none. Timers and tickers are the bubble's.
//
// A bubble's times have no monotonic reading, so Now makes it by hand; without it a step would show in differences, as on no machine.
type machine struct {
	clock.RealClock
	began time.Time

	mu     sync.Mutex
	offset time.Duration
}

func newMachine() *machine { return &machine{began: time.Now()} }

// step sets the wall clock's offset.
func (m *machine) step(offset time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offset = offset
}

// Now implements clock.PassiveClock.
func (m *machine) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	return reading(now.Add(m.offset), now.Sub(m.began))
}

// Since implements clock.PassiveClock.
func (m *machine) Since(t time.Time) time.Duration { return m.Now().Sub(t) }

// layout is the layout of time.Time.
type layout struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

const (
	hasMonotonic = 1 << 63
	nanosBits    = 30
	// wallBase is the year 1885, from which a Time with a monotonic reading counts its seconds, in Unix time.
	wallBase = -2682288000
)

// reading is a time with independent wall clock and monotonic reading. TestReading compares it with package time.
func reading(wall time.Time, monotonic time.Duration) time.Time {
	made := layout{
		wall: hasMonotonic | uint64(wall.Unix()-wallBase)<<nanosBits | uint64(wall.Nanosecond()),
		ext:  int64(monotonic) + 1,
		loc:  time.Local,
	}
	return *(*time.Time)(unsafe.Pointer(&made))
}
