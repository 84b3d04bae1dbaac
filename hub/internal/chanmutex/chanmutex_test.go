// SPDX-License-Identifier: Apache-2.0

package chanmutex

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The holder may wait for a timer: simulated time continues while others wait for the mutex.
func TestMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Mutex
		var all sync.WaitGroup
		inside := 0
		for range 5 {
			all.Go(func() {
				l.Lock()
				defer l.Unlock()
				if inside++; inside != 1 {
					t.Errorf("%d hold the lock", inside)
				}
				if l.TryLock() {
					t.Error("a locked mutex was locked")
				}
				time.Sleep(time.Second)
				inside--
			})
		}
		all.Wait()
		if !l.TryLock() {
			t.Error("an unlocked mutex cannot be locked")
		}
	})
}
