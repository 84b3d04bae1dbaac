// SPDX-License-Identifier: Apache-2.0

// Package tally counts what is in use per key, with a limit for each key: calls of a caller, streams of a cluster, connections of a
// certificate (I14). It stores nothing for a key that has none in use (I10).
package tally

import "sync"

// Tally counts per key. Its zero value admits nothing.
type Tally[K comparable] struct {
	most  int
	mu    sync.Mutex
	count map[K]int
}

// New returns a Tally that admits at most `most` for each key.
func New[K comparable](most int) *Tally[K] { return &Tally[K]{most: most, count: map[K]int{}} }

// Enter adds one to a key's count and returns true, or returns false if the limit is reached. Leave reverts a successful Enter.
func (t *Tally[K]) Enter(key K) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count[key] >= t.most {
		return false
	}
	t.count[key]++
	return true
}

// Leave subtracts one from a key's count.
func (t *Tally[K]) Leave(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count[key]--; t.count[key] == 0 {
		delete(t.count, key)
	}
}

// Len returns the number of keys with a count above zero.
func (t *Tally[K]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.count)
}
