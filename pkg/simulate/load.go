// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"
	"math/rand/v2"
	"time"
)

// Load creates claims. A rate is a number of concurrently wanted sandboxes, the unit in which pools are sized. Claims arrive at a frequency
// of rate/runs, where runs is the mean time that a sandbox is used.
type Load struct {
	random *rand.Rand
	runs   Spread
	claims []Claim
}

// NewLoad returns an empty load whose sandboxes are used for the given times.
func NewLoad(seed uint64, runs Spread) *Load {
	return &Load{random: rand.New(rand.NewPCG(seed, 1)), runs: runs}
}

// Claims returns all claims, in order.
func (l *Load) Claims() []Claim {
	sortClaims(l.claims)
	return l.claims
}

func (l *Load) mean() time.Duration {
	return max(time.Millisecond, (l.runs.Min+2*l.runs.Typical+l.runs.Max)/4)
}

func (l *Load) full() bool { return len(l.claims) >= MaxClaims }

func (l *Load) add(at time.Duration) {
	if l.full() {
		return
	}
	l.claims = append(l.claims, Claim{At: at.Round(time.Millisecond), Runs: l.runs.draw(l.random)})
}

// Burst adds n claims within a short time.
func (l *Load) Burst(at time.Duration, n int, within time.Duration) *Load {
	for i := 0; i < n && !l.full(); i++ {
		l.add(at + time.Duration(l.random.Int64N(int64(max(within, time.Millisecond)))))
	}
	return l
}

// Steady adds a constant rate, with claims at even intervals.
func (l *Load) Steady(from, to time.Duration, wanted float64) *Load {
	if wanted <= 0 {
		return l
	}
	gap := time.Duration(float64(l.mean()) / wanted)
	for at := from; at < to && !l.full(); at += max(gap, time.Microsecond) {
		l.add(at)
	}
	return l
}

// Curve adds a varying rate, never above most. Claims are independent of each other.
func (l *Load) Curve(from, to time.Duration, most float64, wanted func(at time.Duration) float64) *Load {
	if most <= 0 {
		return l
	}
	gap := float64(l.mean()) / most
	for at := from; ; {
		at += time.Duration(gap * -math.Log(1-l.random.Float64()))
		if at >= to || l.full() {
			return l
		}
		if l.random.Float64()*most < wanted(at) {
			l.add(at)
		}
	}
}

// Random adds a constant rate of independent claims.
func (l *Load) Random(from, to time.Duration, wanted float64) *Load {
	return l.Curve(from, to, wanted, func(time.Duration) float64 { return wanted })
}

// Ramp changes the rate linearly.
func (l *Load) Ramp(from, to time.Duration, first, last float64) *Load {
	return l.Curve(from, to, max(first, last), func(at time.Duration) float64 {
		return first + (last-first)*float64(at-from)/float64(to-from)
	})
}

// Day adds the curve of a working day: lowest at four in the morning, highest in the afternoon.
func (l *Load) Day(from, to time.Duration, night, noon float64) *Load {
	return l.Curve(from, to, noon, func(at time.Duration) float64 {
		hour := 2 * math.Pi * float64((at-4*time.Hour)%(24*time.Hour)) / float64(24*time.Hour)
		wave := (1 - math.Cos(hour)) / 2
		return night + (noon-night)*wave*wave
	})
}

// Flapping alternates between two rates, each for half a period.
func (l *Load) Flapping(from, to, period time.Duration, low, high float64) *Load {
	for at := from; at < to; at += period {
		l.Random(at, min(to, at+period/2), high)
		l.Random(min(to, at+period/2), min(to, at+period), low)
	}
	return l
}
