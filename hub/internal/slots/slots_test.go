// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

var few = Options{Clock: clock.RealClock{}, PerCPU: 2, Lasts: 250 * time.Millisecond}

const patience = time.Second

// waited is how long taking a slot took.
func waited(ctx context.Context, r Slots) (free func(), took time.Duration) {
	began := time.Now()
	free = r.Take(ctx, nil, patience)
	return free, time.Since(began)
}

func TestAFreedSlotIsTakenByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(few)
		var frees []func()
		for range r.Size() {
			free, took := waited(t.Context(), r)
			if took > 0 {
				t.Errorf("one of the first %d clusters waited %s", r.Size(), took)
			}
			frees = append(frees, free)
		}
		later := few.Lasts / 2
		go func() {
			time.Sleep(later)
			frees[0]()
			frees[0]() // a stream that ends after its report
		}()
		next, took := waited(t.Context(), r)
		if took != later {
			t.Errorf("the next cluster waited %s, want %s: until a slot is freed", took, later)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if free, took := waited(ctx, r); took != time.Millisecond {
			t.Errorf("a stream that ended waited %s, want 1 ms; one slot was freed twice", took)
		} else {
			free()
		}
		for _, free := range append(frees, next) {
			free()
		}
		synctest.Wait()
		if r.Taken() != 0 {
			t.Errorf("%d slots are taken at the end, want 0", r.Taken())
		}
	})
}

// I7: clusters that take a slot and do nothing delay no other one for longer than its patience, however many they are.
func TestI7ClustersThatDoNothingKeepNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(few)
		for range r.Size() {
			r.Take(t.Context(), nil, patience)
		}
		if _, took := waited(t.Context(), r); took != few.Lasts {
			t.Errorf("beside as many silent clusters as there are slots a cluster waited %s, want %s", took, few.Lasts)
		}
		replaced := make(chan struct{})
		for range r.Size() {
			r.Take(t.Context(), replaced, patience)
		}
		close(replaced)
		synctest.Wait()
		if _, took := waited(t.Context(), r); took != 0 {
			t.Errorf("beside streams that were replaced a cluster waited %s", took)
		}
		for range 100 * r.Size() {
			go r.Take(t.Context(), nil, patience)
		}
		synctest.Wait()
		if _, took := waited(t.Context(), r); took > patience {
			t.Errorf("beside many silent clusters a cluster waited %s, want at most %s", took, patience)
		}
		time.Sleep(time.Minute) // of the fake clock
		if r.Taken() != 0 {
			t.Errorf("%d slots are taken at the end, want 0", r.Taken())
		}
	})
}

// Without patience, all are served in order, and beside clusters that are slow.
func TestWithoutPatienceAllAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(few)
		for range r.Size() {
			r.Take(t.Context(), nil, 0)
		}
		const rounds = 20
		served := make(chan int, rounds*r.Size())
		for i := range cap(served) {
			go func() {
				r.Take(t.Context(), nil, 0)
				served <- i
			}()
			synctest.Wait()
		}
		began := time.Now()
		for i := range cap(served) {
			if got := <-served; got/r.Size() != i/r.Size() {
				t.Errorf("number %d was served as number %d", got, i)
			}
		}
		if took := time.Since(began); took != rounds*few.Lasts {
			t.Errorf("the last of them was served after %s, want %s", took, rounds*few.Lasts)
		}
	})
}

// The slot of a stream that has ended is free at once, and one that waits gives up.
func TestTheSlotOfAnEndedStreamIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(few)
		ctx, end := context.WithCancel(t.Context())
		for range r.Size() {
			r.Take(ctx, nil, 0)
		}
		gone := make(chan struct{})
		go func() {
			r.Take(ctx, nil, 0)
			close(gone)
		}()
		synctest.Wait()
		end()
		<-gone
		synctest.Wait()
		if _, took := waited(t.Context(), r); took != 0 {
			t.Errorf("beside streams that have ended a cluster waited %s", took)
		}
	})
}
