// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"encoding/json"
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
	retryPeriod   = 500 * time.Millisecond
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
}

func (c *client) Identity() string   { return c.name }
func (c *client) Describe() string   { return "the lease" }
func (c *client) RecordEvent(string) {}
func (c *client) ask(ctx context.Context, carryOut func()) error {
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
				lock := WrapWith(&client{&slow{takes: takes}, "me"}, func() time.Duration { return time.Since(begin) })
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
