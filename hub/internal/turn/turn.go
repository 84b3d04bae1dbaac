// SPDX-License-Identifier: Apache-2.0

// Package turn is a lock that may be held while something blocks, such as a write to a store.
//
// Whoever waits for it waits on a channel. A wait for a sync.Mutex keeps the clock of a simulation (testing/synctest) from
// going on, and with it the timers of what holds the mutex.
package turn

import "sync"

// Lock is a mutual exclusion lock. The zero value is unlocked.
type Lock struct {
	once sync.Once
	held chan struct{}
}

func (l *Lock) slot() chan struct{} {
	l.once.Do(func() { l.held = make(chan struct{}, 1) })
	return l.held
}

// Lock waits until nobody holds the lock, and holds it.
func (l *Lock) Lock() { l.slot() <- struct{}{} }

// TryLock holds the lock if nobody does, and reports whether it does.
func (l *Lock) TryLock() bool {
	select {
	case l.slot() <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock lets go of a lock that is held.
func (l *Lock) Unlock() { <-l.slot() }
