// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"time"

	"navix.sh/atoll/pkg/segment"
)

// The write budget of the cluster's API server.
const (
	perEnv        = 3 * time.Second
	writesASecond = 5
	bytesASecond  = 200_000
)

// budget decides which Env may be written now. It depends only on its inputs and on the times that it is given.
type budget struct {
	writes, bytes bucket
	dirty         map[segment.Key]time.Time // when marked
	last          map[segment.Key]time.Time // when last written
}

func newBudget(now time.Time) *budget {
	return &budget{
		writes: bucket{rate: writesASecond, level: writesASecond, at: now},
		bytes:  bucket{rate: bytesASecond, level: bytesASecond, at: now},
		dirty:  map[segment.Key]time.Time{},
		last:   map[segment.Key]time.Time{},
	}
}

// mark records that an Env may need a write. A second mark does not change how long it has been waiting.
func (b *budget) mark(k segment.Key, now time.Time) {
	if _, already := b.dirty[k]; !already {
		b.dirty[k] = now
	}
}

func (b *budget) clean(k segment.Key) { delete(b.dirty, k) }

// wrote accounts for a write or a failed attempt. After a failure, the caller marks the Env again.
func (b *budget) wrote(k segment.Key, size int, now time.Time) {
	b.writes.take(1, now)
	b.bytes.take(float64(size), now)
	b.last[k] = now
}

// next returns the Env that has waited longest among those that may be written. If there is none, wait is when to call again, or 0 if no
// Env is marked.
func (b *budget) next(now time.Time) (k segment.Key, ok bool, wait time.Duration) {
	for k, at := range b.last {
		if now.Sub(at) >= perEnv {
			delete(b.last, k)
		}
	}
	if len(b.dirty) == 0 {
		return k, false, 0
	}
	if empty := max(b.writes.wait(now), b.bytes.wait(now)); empty > 0 {
		return k, false, empty
	}
	var since time.Time
	wait = perEnv
	for candidate, at := range b.dirty {
		if last, recent := b.last[candidate]; recent {
			wait = min(wait, last.Add(perEnv).Sub(now))
			continue
		}
		if !ok || at.Before(since) || at.Equal(since) && candidate.Compare(k) < 0 {
			k, ok, since = candidate, true, at
		}
	}
	if ok {
		return k, true, 0
	}
	return k, false, wait
}

// bucket holds at most the amount of one second, and may be overdrawn by one write.
type bucket struct {
	rate, level float64
	at          time.Time
}

func (b *bucket) fill(now time.Time) {
	b.level = min(b.rate, b.level+b.rate*now.Sub(b.at).Seconds())
	b.at = now
}

func (b *bucket) take(n float64, now time.Time) {
	b.fill(now)
	b.level -= n
}

// wait returns how long it takes until the bucket has enough for a write.
func (b *bucket) wait(now time.Time) time.Duration {
	b.fill(now)
	least := min(1, b.rate)
	if b.level >= least {
		return 0
	}
	return time.Duration((least-b.level)/b.rate*float64(time.Second)).Truncate(time.Millisecond) + time.Millisecond
}
