// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/router"
)

// steppedClock is a wall clock that can be set, over a monotonic one that cannot.
type steppedClock struct {
	clock.RealClock
	step atomic.Int64
}

func (c *steppedClock) Now() time.Time {
	if step := c.step.Load(); step != 0 {
		return c.RealClock.Now().Round(0).Add(time.Duration(step))
	}
	return c.RealClock.Now()
}

// run starts the fleet's loops in a bubble and stops them at the end.
func run(t *testing.T, f *Fleet) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func beatFor(o *owner, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(heartbeatInterval) {
		o.heartbeat()
	}
}

func wantHealth(t *testing.T, f *Fleet, id string, want router.Health) {
	t.Helper()
	synctest.Wait()
	if got := f.cluster(id).Health(); got != want {
		t.Fatalf("%s is %s, want %s", id, got, want)
	}
}

func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		run(t, f)
		o := connected(t, f, "east", envs(3)...)
		beatFor(o, time.Minute)
		wantHealth(t, f, "east", router.Fresh)

		time.Sleep(16*time.Second - heartbeatInterval)
		wantHealth(t, f, "east", router.Silent)
		o.heartbeat()
		wantHealth(t, f, "east", router.Fresh)

		time.Sleep(42 * time.Second)
		wantHealth(t, f, "east", router.Unreachable)
		wantTruth(t, f, o) // kept
		beatFor(o, 9*time.Second)
		wantHealth(t, f, "east", router.Unreachable)
		beatFor(o, 3*time.Second)
		wantHealth(t, f, "east", router.Fresh)

		o.session.NoReceipt()
		wantHealth(t, f, "east", router.NoReceipt)
		o.heartbeat()
		wantHealth(t, f, "east", router.NoReceipt)
		o.session.Receipt()
		wantHealth(t, f, "east", router.Fresh)
		o.session.NoReceipt()
		beatFor(o, 12*time.Second)
		wantHealth(t, f, "east", router.Fresh)

		o.session.Close()
		wantHealth(t, f, "east", router.Disconnected)
		o.connect(f)
		wantHealth(t, f, "east", router.Fresh)
	})
}

// A hub that has just started has marked no cluster unreachable: a cluster that attaches serves at once.
func TestARestartedHubTrustsWhatAttaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := &memoryRegistry{}
		f, o := newFleet(t, registry), newOwner(t, "east")
		o.connect(f)
		f = newFleet(t, registry)
		run(t, f)
		time.Sleep(2 * time.Minute)
		wantHealth(t, f, "east", router.Unreachable)
		o.connect(f)
		wantHealth(t, f, "east", router.Fresh)
	})
}

func TestI5NeitherSilenceNorDisconnectDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		run(t, f)
		o := connected(t, f, "east", envs(50)...)
		time.Sleep(time.Hour)
		wantTruth(t, f, o)
		o.session.Close()
		time.Sleep(30 * 24 * time.Hour)
		wantTruth(t, f, o)
		if d := router.Pick(&router.Request{}, f.View(env(1)), 0); d.OK() || d.Reason != router.ClusterUnreachable {
			t.Errorf("an unreachable cluster was picked: %+v", d)
		}
		o.attach(f) // and back, its complete report still in flight
		wantTruth(t, f, o)
	})
}

func TestI11AStepOfTheWallClockChangesNoLiveness(t *testing.T) {
	for _, step := range []time.Duration{10 * time.Minute, -10 * time.Minute, 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			wall := &steppedClock{}
			f, err := New(t.Context(), Options{Clock: wall, Registry: &memoryRegistry{}})
			must.Succeed(t, err)
			run(t, f)
			o := connected(t, f, "east", envs(3)...)
			beatFor(o, 30*time.Second)
			wall.step.Store(int64(step))
			time.Sleep(2 * time.Second)
			wantHealth(t, f, "east", router.Fresh)
			if age := f.Explain(&router.Request{}, f.View(env(1))).Candidates[0].Age; age > 10*time.Second {
				t.Errorf("the data is shown as %s old", age)
			}
			time.Sleep(12 * time.Second)
			wantHealth(t, f, "east", router.Silent)
			time.Sleep(26 * time.Second)
			wantHealth(t, f, "east", router.Unreachable)
		})
	}
}

// Run saves the record without a hello, and once more when it ends.
func TestRecordsAreSaved(t *testing.T) {
	registry := &memoryRegistry{}
	synctest.Test(t, func(t *testing.T) {
		f, o := newFleet(t, registry), newOwner(t, "east")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		o.connect(f)
		o.heartbeat()
		time.Sleep(saveInterval + time.Second)
		synctest.Wait()
		if got := registry.records["east"].ResourceVersion; got != 101 {
			t.Errorf("resourceVersion %d was saved", got)
		}
		o.heartbeat()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if got := registry.records["east"].ResourceVersion; got != 102 {
		t.Errorf("at the end resourceVersion %d was saved", got)
	}
}

// TestAStreamComesBackWithTheDiskFull: its term is durable, so no write is needed.
func TestAStreamComesBackWithTheDiskFull(t *testing.T) {
	registry := &memoryRegistry{}
	f := newFleet(t, registry)
	o := connected(t, f, "east", pool(env(0), 1))
	o.session.Close()
	registry.mu.Lock()
	registry.fail = errors.New("no space left on device")
	registry.mu.Unlock()
	o.connect(f)
	wantTruth(t, f, o)
	o.newTerm("next") // this one is not, and must be
	session, _ := o.hail(f, o.nextHello())
	if err := session.Begin(&federationv1.Begin{Incarnation: o.incarnation}); err == nil {
		t.Error("I5: an incarnation counts that is not written down")
	}
}
