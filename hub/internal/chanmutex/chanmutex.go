// SPDX-License-Identifier: Apache-2.0

// Package chanmutex provides a mutex that may be held during a blocking operation, such as a write to a store.
//
// Waiting goroutines wait on a channel; because a goroutine that waits for a sync.Mutex stops the clock of a simulation (testing/synctest),
// and with it the timers that the holder waits for: TestMutex.
package chanmutex

import "sync"

// Mutex is a mutual exclusion lock. The zero value is unlocked.
type Mutex struct {
	once sync.Once
	held chan struct{}
}

func (m *Mutex) slot() chan struct{} {
	m.once.Do(func() { m.held = make(chan struct{}, 1) })
	return m.held
}

// Lock waits until the mutex is unlocked, and locks it.
func (m *Mutex) Lock() { m.slot() <- struct{}{} }

// TryLock locks the mutex if it is unlocked, and reports whether it did.
func (m *Mutex) TryLock() bool {
	select {
	case m.slot() <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock unlocks a mutex that is locked.
func (m *Mutex) Unlock() { <-m.slot() }
