// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"math/rand/v2"
	"sync"
	"time"
)

// dice is a separate source of randomness, so that one watch's delays do not depend on another's events.
type dice struct {
	mu     sync.Mutex
	random *rand.Rand
}

func newDice(s *server) *dice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &dice{random: rand.New(rand.NewPCG(s.random.Uint64(), 2))}
}

func (d *dice) below(most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.random.Int64N(int64(most)))
}
