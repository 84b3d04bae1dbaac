// SPDX-License-Identifier: Apache-2.0

// Package tally counts what is in use by key, up to a bound for each key: calls of a caller, streams of a cluster, connections of a
// certificate (I14). Nothing stays of a key that has none in use (I10).
package tally

import "sync"

// Tally counts by key. Its zero value admits nothing.
type Tally[K comparable] struct {
	most  int
	mu    sync.Mutex
	count map[K]int
}

// New returns a Tally with so many for each key.
func New[K comparable](most int) *Tally[K] { return &Tally[K]{most: most, count: map[K]int{}} }

// Enter counts one more of a key, and reports whether there may be one more. Leave takes back what Enter has counted.
func (t *Tally[K]) Enter(key K) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count[key] >= t.most {
		return false
	}
	t.count[key]++
	return true
}

// Leave counts one less of a key.
func (t *Tally[K]) Leave(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count[key]--; t.count[key] == 0 {
		delete(t.count, key)
	}
}

// Len is the number of keys that have any in use.
func (t *Tally[K]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.count)
}
