// SPDX-License-Identifier: Apache-2.0

// Package offset provides a clock with an offset to the system's clock. The offset can be changed while it runs.
//
// In: a duration, or @FILE with a duration, which is reread when it changes. Out: a clock whose times have shifted wall clock readings and
// unshifted monotonic readings. Stepping a machine's clock has the same effect on a Go program: the difference of two times of the same
// process must not change. Timers and tickers are those of the system.
//
// It is for tests. Package wallclock excludes it from released programs.
package offset

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// reread is the maximum delay until a change of the file is noticed.
const reread = 20 * time.Millisecond

// Clock is shifted by whole seconds.
type Clock struct {
	clock.RealClock
	file string // empty: the offset is fixed

	mu     sync.Mutex
	offset time.Duration
	readAt time.Time
}

// New parses the setting: a duration, @FILE, or nothing for no offset. A FILE may be missing or half written; until it can be
// read, the previous offset stays.
func New(setting string) (*Clock, error) {
	if err := probe(); err != nil {
		return nil, err
	}
	if file, ok := strings.CutPrefix(setting, "@"); ok {
		return &Clock{file: file}, nil
	}
	c := &Clock{}
	if setting == "" {
		return c, nil
	}
	var err error
	if c.offset, err = time.ParseDuration(setting); err != nil {
		return nil, fmt.Errorf("reading the clock's offset: %w", err)
	}
	return c, nil
}

// Now returns the shifted time.
func (c *Clock) Now() time.Time { return shift(c.RealClock.Now(), c.current()) }

// Since uses the monotonic clock if t has such a reading, and the shifted wall clock otherwise.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *Clock) current() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == "" || time.Since(c.readAt) < reread {
		return c.offset
	}
	c.readAt = time.Now()
	if content, err := os.ReadFile(c.file); err == nil {
		if d, err := time.ParseDuration(strings.TrimSpace(string(content))); err == nil {
			c.offset = d
		}
	}
	return c.offset
}

// secondsAt is the bit offset of the seconds in the first word of a time.Time with a monotonic reading: 33 bits of seconds above 30 bits of
// nanoseconds. There is no other way to create a time whose two readings differ.
const secondsAt = 30

func shift(t time.Time, by time.Duration) time.Time {
	// Wraps around for a negative offset, as intended.
	*(*uint64)(unsafe.Pointer(&t)) += uint64(int64(by/time.Second)) << secondsAt
	return t
}

// probe checks that this Go version has the layout that shift assumes.
func probe() error {
	now := time.Now()
	for _, by := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		moved := shift(now, by)
		if moved.Sub(now) != 0 || moved.Round(0).Sub(now.Round(0)) != by {
			return errors.New("this Go keeps times in another way than package offset knows")
		}
	}
	return nil
}
