// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
)

// listen receives in the background, as the pump of a stream does, until the stream is replaced.
func (r *receiver) listen() (messages chan *federationv1.Foreign) {
	messages = make(chan *federationv1.Foreign, 1000)
	go func() {
		defer close(messages)
		for {
			m, err := r.own.session.NextForeign(r.t.Context())
			if err != nil {
				return
			}
			messages <- m
		}
	}()
	return messages
}

// TestAReportTravelsInOneMessage has a receiver wait while reports of many Envs arrive: woken by the first Env, it would send
// only that one and the others a pause later.
func TestAReportTravelsInOneMessage(t *testing.T) {
	const count = 100
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		east, west := connected(t, f, "east", envs(count)...), connected(t, f, "west", envs(count)...)
		r := newReceiver(t, east)
		r.drain()
		messages := r.listen()
		for round := range int32(20) {
			synctest.Wait()
			changed := envs(count)
			for _, s := range changed {
				s.Members()[0].ReadyIdle = 1000 + round
			}
			west.change(changed...)
			time.Sleep(foreignCalm)
			synctest.Wait()
			if n := len(messages); n != 1 {
				t.Fatalf("round %d: %d messages, want 1", round, n)
			}
			if m := <-messages; len(m.GetEnvs()) != count {
				t.Fatalf("round %d: %d Envs in the message, want %d", round, len(m.GetEnvs()), count)
			}
		}
		east.session.Close()
	})
}

// TestClustersThatComeBackTogetherAreToldOfTogether is a restarted hub: separately, each cluster that became known would cost
// every receiver a walk over all its Envs.
func TestClustersThatComeBackTogetherAreToldOfTogether(t *testing.T) {
	const clusters = 30
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		east := connected(t, f, "east", envs(3)...)
		time.Sleep(time.Second) // the fleet's first instant counts as never
		messages := newReceiver(t, east).listen()
		known := map[string]bool{}
		complete := 0
		for n := range clusters {
			connected(t, f, fmt.Sprintf("other-%02d", n), envs(3)...)
			synctest.Wait() // the receiver takes what it gets
		}
		time.Sleep(foreignPause)
		synctest.Wait()
		east.session.Close()
		for m := range messages {
			if !m.GetComplete() {
				continue
			}
			complete++
			for _, id := range m.GetKnown() {
				known[id] = true
			}
		}
		if len(known) != clusters || complete > 2 {
			t.Errorf("%d complete messages about %d clusters, want 2 about %d", complete, len(known), clusters)
		}
	})
}

// TestFirstReportsComeBeforeWhatIsToldOfThem is the same restart: while a cluster's first report is arriving, others are sent
// nothing, but for no longer than foreignHold.
func TestFirstReportsComeBeforeWhatIsToldOfThem(t *testing.T) {
	for name, arrives := range map[string]bool{"arrives": true, "stuck": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, &memoryRegistry{})
				west := newOwner(t, "west", envs(3)...)
				west.attach(f)
				east := connected(t, f, "east", envs(3)...)
				begin := time.Now()
				messages := newReceiver(t, east).listen()
				time.Sleep(foreignHold / 2)
				synctest.Wait()
				if len(messages) > 0 {
					t.Error("east was told of others while west's first report was on its way")
				}
				want := foreignHold
				if arrives {
					west.complete()
					want = foreignHold / 2
				}
				m := <-messages
				if took := time.Since(begin); took != want || m.GetComplete() != true || (len(m.GetKnown()) == 1) != arrives {
					t.Errorf("after %s, want %s: %v", took, want, m)
				}
				east.session.Close()
			})
		})
	}
}

// TestCountsWaitLongerThanEdges: changes that trigger no action are sent once a second, and along with those that do.
func TestCountsWaitLongerThanEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		east, west := connected(t, f, "east", envs(3)...), connected(t, f, "west", envs(3)...)
		r := newReceiver(t, east)
		r.drain()
		time.Sleep(foreignCalm)
		messages := r.listen()
		arrives := func(what string, after time.Duration, envs int) {
			t.Helper()
			begin := time.Now()
			if m := <-messages; time.Since(begin) != after || len(m.GetEnvs()) != envs {
				t.Errorf("%s: after %s with %d Envs, want %s with %d", what, time.Since(begin), len(m.GetEnvs()), after, envs)
			}
		}
		west.change(pool(env(0), 5))
		arrives("a count after a long silence", 0, 1)
		west.change(pool(env(0), 6))
		arrives("a count", foreignCalm, 1)
		west.change(pool(env(0), 7))
		synctest.Wait()
		west.change(pool(env(1), 0))
		arrives("a count and an edge", foreignPause, 2)
		west.change(pool(env(0), 8))
		synctest.Wait()
		west.change(pool(env(0), 0))
		arrives("a count, and an edge of the same Env", foreignPause, 1)
		west.change(pool(env(0), 9))
		arrives("another edge of it", foreignPause, 1)
		east.session.Close()
	})
}

// After a restart all streams want a complete message. Few have one at a time: the next one waits until one is sent, and no longer than the
// slot of one that does not read lasts (I7).
func TestForeignMessagesHaveSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		size := f.fulls.Size()
		var owners []*owner
		for n := range size + 2 {
			owners = append(owners, connected(t, f, fmt.Sprintf("c-%02d", n), envs(1)...))
		}
		time.Sleep(time.Second) // the fleet's first instant counts as never
		ctx, end := context.WithCancel(t.Context())
		first := func(o *owner, want time.Duration) {
			t.Helper()
			began := time.Now()
			m, err := o.session.NextForeign(ctx)
			must.Succeed(t, err)
			if took := time.Since(began); took != want || !m.GetComplete() {
				t.Errorf("%s had its message after %s, want %s; it is complete: %t", o.id, took, want, m.GetComplete())
			}
		}
		for _, o := range owners[:size] {
			first(o, 0)
		}
		const sent, lasts = 100 * time.Millisecond, 250 * time.Millisecond
		var reading sync.WaitGroup
		reading.Go(func() {
			time.Sleep(sent)
			_, _ = owners[0].session.NextForeign(ctx) // has nothing more until the end
		})
		first(owners[size], sent)
		first(owners[size+1], lasts-sent)
		end()
		reading.Wait()
	})
}

// While first reports arrive, complete messages of those that are in give way to them, up to foreignHold (I7).
func TestCompleteMessagesGiveWayToFirstReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &memoryRegistry{})
		time.Sleep(time.Second) // the fleet's first instant counts as never
		east := connected(t, f, "east", envs(1)...)
		messages := newReceiver(t, east).listen()
		<-messages
		began := time.Now()
		newOwner(t, "arriving").attach(f)
		connected(t, f, "west", envs(1)...)
		m := <-messages
		for !m.GetComplete() { // of the roster
			m = <-messages
		}
		if took := time.Since(began); took != foreignHold || !slices.Equal(m.GetKnown(), []string{"west"}) {
			t.Errorf("beside one that arrives, a message of %v came after %s, want west after %s", m.GetKnown(), took, foreignHold)
		}
		east.session.Close()
	})
}
