// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"math"
	"testing"
	"time"

	"navix.sh/atoll/pkg/segment"
)

func key(n int) segment.Key {
	return segment.Key{Namespace: "default", Name: fmt.Sprintf("env-%03d", n)}
}

// spend writes whatever may be written during d, and returns how many writes that was and what was written when.
func spend(b *budget, from time.Time, d time.Duration, size int) (times map[segment.Key][]time.Duration, writes int) {
	times = map[segment.Key][]time.Duration{}
	for at := from; at.Sub(from) < d; {
		k, ok, wait := b.next(at)
		switch {
		case ok:
			b.clean(k)
			b.wrote(k, size, at)
			times[k] = append(times[k], at.Sub(from))
			writes++
		case wait == 0:
			return times, writes
		default:
			at = at.Add(wait)
		}
		for k := range times { // everything changes all the time
			b.mark(k, at)
		}
	}
	return times, writes
}

func TestBudgetHoldsTheClusterToFiveWritesASecond(t *testing.T) {
	b := newBudget(now)
	for n := range 100 {
		b.mark(key(n), now)
	}
	times, writes := spend(b, now, time.Minute, 1000)
	if writes < 5*60 || writes > 5*61 {
		t.Errorf("%d writes in a minute, want about 300", writes)
	}
	if len(times) != 100 {
		t.Errorf("%d of 100 Envs were written: some starve", len(times))
	}
	for k, at := range times {
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < perEnv || gap > 25*time.Second {
				t.Errorf("%s was written %s after the last time, want about 20 s", k, gap)
			}
		}
	}
}

func TestBudgetHoldsOneEnvToAWriteEveryThreeSeconds(t *testing.T) {
	b := newBudget(now)
	b.mark(key(0), now)
	if _, writes := spend(b, now, 30*time.Second, 1000); writes != 10 {
		t.Errorf("%d writes in 30 s, want 10", writes)
	}
}

func TestBudgetHoldsTheClusterTo200KilobytesASecond(t *testing.T) {
	b := newBudget(now)
	for n := range 100 {
		b.mark(key(n), now)
	}
	_, writes := spend(b, now, time.Minute, 120_000)
	if bytes := writes * 120_000; bytes > 61*bytesASecond+120_000 || bytes < 55*bytesASecond {
		t.Errorf("%d bytes in a minute, want about 12 MB", bytes)
	}
}

func TestBudgetTakesTheOldestFirst(t *testing.T) {
	b := newBudget(now)
	b.mark(key(1), now.Add(time.Second))
	b.mark(key(2), now)
	b.mark(key(2), now.Add(2*time.Second))
	if k, ok, _ := b.next(now.Add(3 * time.Second)); !ok || k != key(2) {
		t.Errorf("next is %s, %v", k, ok)
	}
}

func TestBudgetForgets(t *testing.T) {
	b := newBudget(now)
	for n := range 1000 {
		b.wrote(key(n), 0, now)
	}
	b.next(now.Add(perEnv))
	if len(b.last) != 0 || len(b.dirty) != 0 {
		t.Errorf("%d and %d Envs are remembered for nothing", len(b.last), len(b.dirty))
	}
}

// A total of members does not wrap around, whatever their cluster reports.
func TestTotalsSaturate(t *testing.T) {
	const most = math.MaxInt32
	m := member{IdleCount: most, RunningCount: most, DesiredReplicas: most, CurrentReplicas: most, PendingRequests: most}
	total := m
	total.add(&m)
	if total != m {
		t.Errorf("twice %+v is %+v", m, total)
	}
}
