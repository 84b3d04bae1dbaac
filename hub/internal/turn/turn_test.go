// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Who holds the lock may wait for a timer: simulated time goes on while others wait for the lock.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lock
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
					t.Error("a lock that is held was taken")
				}
				time.Sleep(time.Second)
				inside--
			})
		}
		all.Wait()
		if !l.TryLock() {
			t.Error("a lock that nobody holds cannot be taken")
		}
	})
}
