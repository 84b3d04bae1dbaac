// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"navix.sh/atoll/e2e/must"
)

// As in worker/run.go.
const (
	duration      = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 250 * time.Millisecond
)

// slow is an API server that takes as long for each response, and carries out what its client has abandoned.
type slow struct {
	takes time.Duration

	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
}

// client is one candidate's connection.
type client struct {
	*slow
	name string
	off  atomic.Bool // it is cut
}

func (c *client) Identity() string   { return c.name }
func (c *client) Describe() string   { return "the lease" }
func (c *client) RecordEvent(string) {}
func (c *client) ask(ctx context.Context, carryOut func()) error {
	if c.off.Load() {
		return errors.New("connection refused")
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout(renewDeadline))
	defer cancel()
	done := make(chan struct{})
	go func() {
		time.Sleep(c.takes)
		carryOut()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *client) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var record *resourcelock.LeaderElectionRecord
	err := c.ask(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		record = c.record
	})
	switch {
	case err != nil:
		return nil, nil, err
	case record == nil:
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "lease")
	}
	raw, err := json.Marshal(record)
	return record, raw, err
}

func (c *client) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.Update(ctx, record)
}

func (c *client) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.ask(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.record = &record
	})
}

// An API server that takes five seconds and more for each response costs no leader the lease.
func TestASlowAPIServerCostsNoLease(t *testing.T) {
	for _, takes := range []time.Duration{0, 5 * time.Second, 5500 * time.Millisecond, 6400 * time.Millisecond} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				lock := WrapWith(&client{slow: &slow{takes: takes}, name: "me"}, func() time.Duration { return time.Since(begin) })
				var led, ended atomic.Bool
				elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
					Lock: lock, LeaseDuration: duration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(context.Context) { led.Store(true) }, OnStoppedLeading: func() { ended.Store(true) },
					},
				})
				must.Succeed(t, err)
				ctx, stop := context.WithCancel(t.Context())
				defer time.Sleep(time.Minute) // until all requests have a response
				defer stop()
				go elector.Run(ctx)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if !led.Load() {
					t.Fatal("it does not lead after 20 s")
				}
				for range 600 {
					if !lock.Held() || ended.Load() {
						t.Fatalf("after %s: held %v, ended %v", time.Since(begin), lock.Held(), ended.Load())
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		})
	}
}

// After its leader was killed, a cluster has another one within 8 s. A leader that an API server keeps from renewing for a few
// seconds goes on, unless another one leads by then.
func TestTakeover(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			api := &slow{}
			begin := time.Now()
			now := func() time.Duration { return time.Since(begin) }
			stops := map[string]context.CancelFunc{}
			locks := map[string]*Lock{}
			wires := map[string]*client{}
			defer func() {
				for _, stop := range stops {
					stop()
				}
				time.Sleep(time.Minute)
			}()
			for _, name := range []string{"a", "b"} {
				wires[name] = &client{slow: api, name: name}
				lock := WrapWith(wires[name], now)
				elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
					Lock: lock, LeaseDuration: duration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
					Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
				})
				must.Succeed(t, err)
				var ctx context.Context
				ctx, stops[name] = context.WithCancel(t.Context())
				locks[name] = lock
				go elector.Run(ctx)
				time.Sleep(10*time.Second + time.Duration(rand.Int64N(int64(2*time.Second)))) // a leads
			}
			if !locks["a"].Held() || locks["b"].Held() {
				t.Fatal("the first one does not lead alone")
			}
			wires["a"].off.Store(true) // its writes fail, and are not carried out
			killed := time.Now()
			for !locks["b"].Held() {
				if time.Sleep(10 * time.Millisecond); time.Since(killed) > time.Minute {
					t.Fatal("no other one leads")
				}
				if locks["a"].Held() && locks["b"].Held() {
					t.Fatal("both lead (I2)")
				}
			}
			if took := time.Since(killed); took > 8*time.Second-500*time.Millisecond { // it has to begin its work as well
				t.Errorf("another one leads after %s", took)
			}
			stops["a"]()
			wires["b"].off.Store(true)
			time.Sleep(shortDuration + time.Second)
			if locks["b"].Held() {
				t.Error("the lease is held without a renewal")
			}
			wires["b"].off.Store(false)
			time.Sleep(2 * time.Second)
			if !locks["b"].Held() {
				t.Error("a leader whose lease has lapsed and that no other one has replaced does not go on")
			}
		})
	}
}
