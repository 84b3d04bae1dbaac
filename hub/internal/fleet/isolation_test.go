// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/router"
)

// Three faults of one cluster: its record cannot be written, its report takes forever, and it does not read what it is sent. The
// other is served in no time, on a clock that moves only when every goroutine waits.
func TestI7AStuckClusterDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		registry := &memoryRegistry{block: map[string]chan struct{}{}}
		f := newFleet(t, registry)
		stuck, applying := connected(t, f, "stuck", envs(20)...), connected(t, f, "applying", envs(20)...)
		well := connected(t, f, "well", envs(20)...)
		// applying falls silent, too, so that its health has to be evaluated while its report is at work.
		beatFor(well, unreachableAfter+time.Second)
		registry.block["stuck"] = gate
		done := make(chan error)
		go func() {
			stuck.newTerm("next") // must be made durable
			_, _, _ = f.Connect(Peer{ClusterID: stuck.id}, stuck.nextHello())
			_ = f.cluster("stuck").saveIfDirty(context.Background()) // waits for nothing: there is nothing new
			s := f.cluster("stuck").session.Load()
			done <- s.Begin(&federationv1.Begin{Incarnation: stuck.incarnation})
		}()
		f.cluster("applying").mu.Lock()
		synctest.Wait()

		start := time.Now()
		for n := range int32(100) {
			well.connect(f)
			well.heartbeat()
			if ack := well.change(pool(env(int(n)%20), n)); ack.GetSendComplete() {
				t.Fatal("the report was questioned")
			}
			if view, d := f.pick(env(3), &router.Request{Clusters: []string{"well"}, RequireClusters: true}, 1); !d.OK() {
				t.Fatalf("nothing to pick: %s", d.Reason)
			} else {
				r := f.Reserve(view, d.Index)
				r.Cancel()
			}
			for _, c := range f.sorted() {
				c.evaluate()
			}
			if _, err := well.session.NextForeign(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(start); waited > 0 {
			t.Errorf("the well cluster waited %s for the others", waited)
		}
		wantTruth(t, f, well)
		f.cluster("applying").mu.Unlock()
		wantTruth(t, f, applying)
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the stuck cluster's begin ended with %v", err)
		}
		close(gate)
	})
}

// Readers, reporters, receivers and health at once, all on the same Envs. For the race detector, and for the end: every
// claim in flight is accounted for, and every view is right.
func TestEverythingAtOnce(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	ctx, cancel := context.WithCancel(t.Context())
	var owners []*owner
	for i := range 5 {
		owners = append(owners, connected(t, f, fmt.Sprint("cluster-", i), envs(10)...))
	}
	var reporters, others sync.WaitGroup
	for i, o := range owners {
		reporters.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for range 400 {
				k := env(rnd.IntN(14))
				switch rnd.IntN(10) {
				case 0:
					o.remove(k)
				case 1:
					o.heartbeat()
				case 2:
					o.session.NoReceipt()
					o.session.Receipt()
				default:
					o.change(pool(k, rnd.Int32N(5)))
				}
			}
		})
		session := o.session
		others.Go(func() {
			for {
				if _, err := session.NextForeign(ctx); err != nil {
					return
				}
			}
		})
	}
	for i := range 3 {
		others.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 2))
			for ctx.Err() == nil {
				view, d := f.pick(env(rnd.IntN(14)), &router.Request{}, rnd.Uint64())
				if d.OK() {
					r := f.Reserve(view, d.Index)
					if rnd.IntN(2) == 0 {
						r.Settle(rnd.Uint64N(500))
					}
					r.Cancel()
				}
				if rnd.IntN(50) == 0 {
					for _, key := range f.Keys("") {
						f.Env(key)
					}
					f.Clusters()
					for _, c := range f.sorted() {
						c.evaluate()
					}
				}
			}
		})
	}
	reporters.Wait()
	cancel()
	others.Wait()
	for _, o := range owners {
		wantTruth(t, f, o)
		for range coverBeats + 1 {
			o.heartbeat()
		}
	}
	for _, k := range f.Keys("") {
		for _, c := range f.Explain(&router.Request{}, f.View(k)).Candidates {
			if c.InFlight != 0 {
				t.Errorf("%d claims are in flight at %s of %s when all have ended", c.InFlight, c.Member().Name, k)
			}
		}
	}
}

func TestAPickAllocatesNothing(t *testing.T) {
	f := newFleet(t, &memoryRegistry{})
	connected(t, f, "east", envs(10)...)
	req := &router.Request{}
	if got := testing.AllocsPerRun(1000, func() { f.pick(env0, req, 7) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

var env0 = env(0)
