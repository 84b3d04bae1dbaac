// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// A party has its burst, then its rate, whatever others cause; what is given back was never caused.
func TestI14EachPartyHasItsOwnRate(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
	p := New[string](Limits{Rate: 10, Burst: 2 * time.Second}, clock)
	for i, step := range []struct {
		key    string
		after  time.Duration
		amount float64
		want   time.Duration
	}{
		{key: "a", amount: 20}, {key: "a", amount: 5, want: 500 * time.Millisecond}, {key: "b", amount: 1},
		{key: "a", after: 400 * time.Millisecond, want: 100 * time.Millisecond}, {key: "a", after: 100 * time.Millisecond},
		{key: "a", amount: 10, want: time.Second}, {key: "a", amount: -10}, {key: "a", after: 900 * time.Millisecond, amount: 9},
		{key: "a", amount: 1, want: 100 * time.Millisecond},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		if got := p.Take(step.key, step.amount); got.Round(time.Millisecond) != step.want {
			t.Errorf("step %d: %+v: wait %s", i, step, got)
		}
	}
	clock.SetTime(clock.Now().Add(time.Minute))
	if p.Take("c", 1); p.Len() != 1 {
		t.Errorf("I10: %d accounts are kept, want that of c alone", p.Len())
	}
}

// I14: a thousand parties that cause all they can leave a new one enough to begin with, and cause little more than the total together.
func TestManyPartiesShareWhatThereIs(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
	p := New[int](Limits{Rate: 100, All: 400, Burst: 2 * time.Second, Least: 4}, clock)
	caused := make([]time.Time, 1000) // when each may go on
	total := 0
	const long = 20 * time.Second
	for end := clock.Now().Add(long); clock.Now().Before(end); clock.SetTime(clock.Now().Add(10 * time.Millisecond)) {
		for i := range caused {
			if !clock.Now().Before(caused[i]) {
				total++
				caused[i] = clock.Now().Add(p.Take(i, 1))
			}
		}
	}
	// The first ones are there before the others are known.
	if most := 1000*5 + 3*400 + int(long.Seconds())*400; total > most {
		t.Errorf("%d were caused in %s, want at most %d", total, long, most)
	}
	if wait := p.Take(-1, 3); wait > 0 {
		t.Errorf("a new party waits %s", wait)
	}
}

// Parties beyond the number of accounts are bounded together.
func TestPartiesWithoutAccountsShareOne(t *testing.T) {
	p := New[int](Limits{Rate: 1, Burst: time.Second}, clocktesting.NewFakePassiveClock(time.Unix(1, 0)))
	for i := range maxParties {
		p.Take(i, 1)
	}
	if first, second := p.Take(-1, 1), p.Take(-2, 1); p.Len() != maxParties || first != 0 || second != time.Second {
		t.Errorf("%d accounts; waits %s and %s", p.Len(), first, second)
	}
}

// A rate of 0 is none.
func TestNoPace(t *testing.T) {
	if wait := New[int](Limits{}, clocktesting.NewFakePassiveClock(time.Unix(1, 0))).Take(1, 1e9); wait != 0 {
		t.Errorf("wait %s", wait)
	}
}
