// SPDX-License-Identifier: Apache-2.0

package await_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"navix.sh/atoll/worker/internal/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id = "a-east"

// state is what there is to know, and who is told of it.
type state struct {
	tasks *await.Tasks
	value atomic.Int32
	asked atomic.Int32
}

func newState() *state { return &state{tasks: await.New(clock.RealClock{})} }

func (s *state) set(v int32) {
	s.value.Store(v)
	s.tasks.Changed(id)
}

// until asks for a value; a negative one is an error.
func (s *state) until(want int32, within time.Duration) await.Question {
	return await.Question{Within: within, Done: func() (bool, error) {
		s.asked.Add(1)
		if v := s.value.Load(); v < 0 {
			return false, errBroken
		} else if v == want {
			return true, nil
		}
		return false, nil
	}}
}

var errBroken = errors.New("broken")

func (s *state) wantFree(t *testing.T) {
	t.Helper()
	if n, action := s.tasks.Len(), s.tasks.Active(id); n != 0 || action != "" {
		t.Errorf("%d hooks are held, %q by this sandbox", n, action)
	}
}

func TestOneActionASandbox(t *testing.T) {
	s := newState()
	first, err := s.tasks.NewPause(id)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.tasks.NewPause(id)
	if err != nil {
		t.Fatalf("the same action is shared: %v", err)
	}
	var conflict *await.ConflictError
	if _, err := s.tasks.NewResume(id); !errors.As(err, &conflict) || conflict.Active != await.Pause || conflict.Wanted != await.Resume || conflict.ID != id {
		t.Errorf("the other action is answered %v", err)
	}
	if _, err := s.tasks.NewResume("b-east"); err != nil {
		t.Errorf("another sandbox: %v", err)
	}
	if err := s.tasks.NewReady(id).Wait(t.Context(), s.until(1, time.Minute)); !errors.As(err, &conflict) || conflict.Wanted != await.Ready {
		t.Errorf("waiting for ready is answered %v", err)
	}
	first.Release()
	first.Release()
	if got := s.tasks.Active(id); got != await.Pause {
		t.Errorf("the hook is %q while a task shares it", got)
	}
	second.Release()
	resume, err := s.tasks.NewResume(id)
	if err != nil {
		t.Errorf("after both are released: %v", err)
	}
	resume.Release()
	if got := s.tasks.Active(id); got != "" {
		t.Errorf("the hook is %q in the end", got)
	}
}

// A task that is ready for nothing yet holds nothing.
func TestReadyIsLazy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState()
		ready := s.tasks.NewReady(id)
		s.wantFree(t)
		pause, err := s.tasks.NewPause(id)
		if err != nil {
			t.Fatal(err)
		}
		pause.Release()
		go func() {
			time.Sleep(time.Second)
			if got := s.tasks.Active(id); got != await.Ready {
				t.Errorf("while it waits the hook is %q", got)
			}
			s.set(1)
		}()
		if err := ready.Wait(t.Context(), s.until(1, time.Minute)); err != nil {
			t.Error(err)
		}
		s.wantFree(t)
	})
}

// Changes wake, all that share a task, and nothing else makes them ask.
func TestChangesWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState()
		began := time.Now()
		var waits sync.WaitGroup
		for range 3 {
			task, err := s.tasks.NewPause(id)
			if err != nil {
				t.Fatal(err)
			}
			waits.Go(func() {
				if err := task.Wait(t.Context(), s.until(2, time.Hour)); err != nil {
					t.Error(err)
				}
			})
		}
		for v := range int32(2) {
			time.Sleep(time.Minute)
			s.set(v + 1)
		}
		waits.Wait()
		if took, asked := time.Since(began), s.asked.Load(); took != 2*time.Minute || asked != 9 {
			t.Errorf("it took %s and %d questions, want 2m and 9", took, asked)
		}
		s.wantFree(t)
	})
}

// However a wait ends, the hook is free.
func TestAlwaysReleased(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(s *state, cancel func())
		want error
	}{
		"answered":  {func(s *state, _ func()) { s.set(1) }, nil},
		"failed":    {func(s *state, _ func()) { s.set(-1) }, errBroken},
		"cancelled": {func(_ *state, cancel func()) { cancel() }, context.Canceled},
		"too late":  {func(*state, func()) {}, await.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newState()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				task, err := s.tasks.NewResume(id)
				if err != nil {
					t.Fatal(err)
				}
				defer task.Release()
				time.AfterFunc(time.Second, func() { tt.end(s, cancel) })
				if err := task.Wait(ctx, s.until(1, time.Minute)); !errors.Is(err, tt.want) {
					t.Errorf("%v, want %v", err, tt.want)
				}
				s.wantFree(t)
			})
		})
	}
	t.Run("panic", func(t *testing.T) {
		s := newState()
		task, err := s.tasks.NewPause(id)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = task.Wait(t.Context(), await.Question{Within: time.Minute, Done: func() (bool, error) { panic("in the question") }})
		}()
		s.wantFree(t)
	})
}

// A wait that gives up looks once at what is there now.
func TestLiveInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState()
		q := s.until(1, time.Minute)
		reads := 0
		q.Live = func(context.Context) error {
			reads++
			s.value.Store(1) // of which no event has told
			return nil
		}
		if err := s.tasks.NewReady(id).Wait(t.Context(), q); err != nil || reads != 1 {
			t.Errorf("%v after %d live reads, want no error after one", err, reads)
		}
		s.value.Store(0)
		q.Live = func(context.Context) error { return errBroken }
		if err := s.tasks.NewReady(id).Wait(t.Context(), q); !errors.Is(err, await.ErrTimeout) || !errors.Is(err, errBroken) {
			t.Errorf("a live read that fails: %v, want it and ErrTimeout", err)
		}
	})
}

// What changes between a question and the wait for the next change is not missed.
func TestNothingIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState()
		q := s.until(1, time.Hour)
		done := q.Done
		q.Done = func() (bool, error) {
			ok, err := done()
			if s.asked.Load() == 1 {
				s.set(1)
			}
			return ok, err
		}
		began := time.Now()
		if err := s.tasks.NewReady(id).Wait(t.Context(), q); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %s, want it at once", err, time.Since(began))
		}
	})
}
