// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// endless is a sandbox that sends at line rate: ten messages a millisecond over all its conversations.
type endless struct {
	Tunnel
	message []byte
}

func (e endless) Recv() ([]byte, error) { return e.message, nil }
func (e endless) Send([]byte) error     { return nil }
func (e endless) Close(error)           {}
func (e endless) Cut() <-chan struct{}  { return nil }

// I14: teams share equally; a sandbox leaves half to others of its team; a terminal waits for nothing; what waits can be closed.
func TestI14BandwidthIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBandwidth(Rates{All: 8 * mib, Account: 6 * mib, Sandbox: 3 * mib}, clock.RealClock{})
		const long = 10 * time.Second
		end := time.Now().Add(long)
		var mu sync.Mutex
		carried := map[string]int{}
		var all sync.WaitGroup
		load := func(team, sandbox string, conversations int, until time.Time) {
			for i := range conversations {
				all.Go(func() {
					tunnel := b.Share(endless{message: make([]byte, MaxMessage-1)}, Holder{Account: team, Sandbox: sandbox})
					for time.Now().Before(until) {
						message, _ := tunnel.Recv()
						if i%2 == 1 { // both directions count
							_ = tunnel.Send(message)
						}
						mu.Lock()
						carried[team] += (1 + i%2) * len(message)
						carried[sandbox] += (1 + i%2) * len(message)
						mu.Unlock()
					}
				})
			}
		}
		for i := range 4 {
			load("red", fmt.Sprint("red-", i), 4, end)
		}
		load("blue", "blue-0", 1, end)
		load("blue", "blue-1", 1, end)
		var slowest time.Duration
		all.Go(func() { // a terminal
			tunnel := b.Share(endless{message: make([]byte, 100)}, Holder{Account: "green", Sandbox: "green-0"})
			for time.Now().Before(end) {
				began := time.Now()
				_, _ = tunnel.Recv()
				slowest = max(slowest, time.Since(began))
				time.Sleep(50 * time.Millisecond)
			}
		})
		all.Wait()
		if ratio := float64(carried["blue"]) / float64(carried["red"]); ratio < 0.75 || ratio > 1.34 {
			t.Errorf("blue carried %.2f of what red did, want as much: %v", ratio, carried)
		}
		// The terminal counts as an account while it has something to carry.
		if sum := carried["red"] + carried["blue"]; sum < 8*mib*10*6/10 || sum > 8*mib*10*12/10 {
			t.Errorf("%d MiB were carried in %s, want about 80", sum/mib, long)
		}
		if slowest > 0 {
			t.Errorf("a terminal waited %s", slowest)
		}
		carried = map[string]int{}
		load("red", "red-0", 4, time.Now().Add(long))
		all.Wait()
		if got := carried["red-0"] / mib; got < 29 || got > 33 {
			t.Errorf("one sandbox carried %d MiB in %s, want 30", got, long)
		}
		tunnel := b.Share(endless{message: make([]byte, 20*mib)}, Holder{Account: "red", Sandbox: "red-0"})
		began := time.Now()
		time.AfterFunc(time.Second, func() { tunnel.Close(nil) })
		_, _ = tunnel.Recv()
		if took := time.Since(began); took != time.Second {
			t.Errorf("a conversation that waits was closed after %s, want 1s", took)
		}
	})
}
