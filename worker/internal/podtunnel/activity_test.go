// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/idle"
)

// touches are sandboxes that get only touches.
type touches struct {
	Sandboxes
	monitor *idle.Monitor
}

func (t touches) Touch(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return nil, t.monitor.Touch(ctx, id)
}

// I11: whenever the worker is killed, its successor knows the traffic well enough not to end the sandbox early, however traffic
// arrives.
func TestI11TalkIsWrittenDownInTime(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 10 * time.Second, 22 * time.Second, 29 * time.Second,
		10 * time.Minute} {
		t.Run(fmt.Sprint(every), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				began := time.Now()
				var written, talked time.Time
				writes := 0
				monitor, err := idle.New(idle.Options{Clock: clock.RealClock{}, Log: logr.Discard(),
					Write: func(_ context.Context, _ string, at time.Time) error {
						time.Sleep(800 * time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						written, writes = at, writes+1
						return nil
					}})
				must.Succeed(t, err)
				timeouts := idle.Timeouts{Idle: 11 * time.Minute}
				monitor.See("a", timeouts, true)
				s := &Service{opts: Options{Sandboxes: touches{monitor: monitor}, Activity: NewActivity(clock.RealClock{}), Clock: clock.RealClock{},
					Log: logr.Discard()}}
				for range 400 {
					time.Sleep(every)
					s.noteActive("a")
					talked = time.Now()
					time.Sleep(900 * time.Millisecond) // the write of traffic that no caller waits for
					mu.Lock()
					life := idle.TakeOver(timeouts, idle.Written{
						Claimed: began.Truncate(time.Second), Started: began.Truncate(time.Second), Active: written.Truncate(time.Second),
					}, true, time.Since, time.Now())
					mu.Unlock()
					if early := talked.Sub(life.Active); early > 0 {
						t.Fatalf("after talk at %s a later leader is %s early: %s is written down", talked.Sub(began), early, written.Sub(began))
					}
				}
				if most := int(time.Since(began)/(20*time.Second)) + 2; writes > most {
					t.Errorf("%d writes in %s, at most %d", writes, time.Since(began), most)
				}
			})
		})
	}
}
