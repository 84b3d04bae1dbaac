// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
)

// TestI14SlowHandshakesHoldUpNoOther: peers that say nothing have no slot, and those that compute have one each.
func TestI14SlowHandshakesHoldUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(chan struct{}, 1)
		var silent sync.WaitGroup
		var ends []net.Conn
		for range 5 {
			here, there := net.Pipe()
			ends = append(ends, there)
			silent.Go(func() {
				c := begin(here, slots)
				defer c.end()
				_, _ = c.Read(make([]byte, 1))
			})
		}
		synctest.Wait()
		here, there := net.Pipe()
		c := begin(here, slots) // would wait forever behind them
		began := make(chan struct{})
		go func() {
			begin(nil, slots).end()
			close(began)
		}()
		synctest.Wait()
		select {
		case <-began:
			t.Error("two compute at the same time")
		default:
		}
		c.end()
		<-began
		go func() { _, _ = there.Write([]byte("x")) }()
		if _, err := c.Read(make([]byte, 1)); err != nil { // after the handshake there are no slots
			t.Error(err)
		}
		for _, end := range append(ends, there) {
			_ = end.Close()
		}
		silent.Wait()
		if len(slots) != 0 {
			t.Errorf("%d slots are left taken", len(slots))
		}
	})
}

// TestAnAbandonedHandshakeLeavesNoSlotTaken: its caller returns while it still reads, as gRPC's does when its time is over.
func TestAnAbandonedHandshakeLeavesNoSlotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(chan struct{}, 1)
		here, there := net.Pipe()
		c := begin(here, slots)
		var abandoned sync.WaitGroup
		abandoned.Go(func() { _, _ = c.Read(make([]byte, 1)) })
		synctest.Wait()
		c.end()
		_ = there.Close()
		abandoned.Wait()
		if len(slots) != 0 {
			t.Error("the slot is left taken")
		}
	})
}
