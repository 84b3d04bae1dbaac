// SPDX-License-Identifier: Apache-2.0

package idle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
)

// world plays the Pods: what ends, and what is written on them.
type world struct {
	*Monitor
	t *testing.T

	mu      sync.Mutex
	began   time.Time
	ended   map[string]time.Duration
	reasons map[string]Reason
	written map[string][]time.Duration
	failing error                // of ends and writes
	hold    chan struct{}        // an end waits for it, where there is one
	active  map[string]time.Time // of the source
	silent  error                // of the source
}

// GetLastActive returns the source's activity.
func (w *world) GetLastActive(context.Context) (map[string]time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.active), w.silent
}

func (w *world) with(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) end(_ context.Context, id string) error {
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		<-hold
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing != nil {
		return w.failing
	}
	d := w.Decide(id)
	if d.Reason == "" {
		return nil
	}
	w.ended[id], w.reasons[id] = time.Since(w.began), d.Reason
	w.Forget(id)
	return nil
}

func (w *world) write(_ context.Context, id string, at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing != nil {
		return w.failing
	}
	w.written[id] = append(w.written[id], at.Sub(w.began))
	return nil
}

func (w *world) endedAt(id string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended[id]
}

// wantEnd expects an end within 5 s after a time, and never before.
func (w *world) wantEnd(id string, after time.Duration) {
	w.t.Helper()
	if got := w.endedAt(id); got < after || got > after+5*time.Second {
		w.t.Errorf("%s ended at %s, want it within 5s after %s", id, got, after)
	}
}

func (w *world) touch(id string) {
	w.t.Helper()
	if err := w.Touch(w.t.Context(), id); err != nil {
		w.t.Error(err)
	}
}

func run(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, began: time.Now(), ended: map[string]time.Duration{}, reasons: map[string]Reason{},
			written: map[string][]time.Duration{}}
		var err error
		w.Monitor, err = New(Options{
			Clock: clock.RealClock{}, Sources: []LastActiveSource{w}, End: w.end, Write: w.write, Log: logr.Discard(),
		})
		must.Succeed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		f(w)
		cancel()
		running.Wait()
	})
}

func TestSandboxesEndOnTime(t *testing.T) {
	run(t, func(w *world) {
		w.See("idle", Timeouts{Idle: time.Minute}, true)
		w.See("touched", Timeouts{Idle: time.Minute}, true)
		w.See("old", Timeouts{MaxLifetime: 90 * time.Second}, true)
		w.See("unused", Timeouts{FirstActivity: 100 * time.Second}, true)
		w.See("used", Timeouts{FirstActivity: 100 * time.Second}, true)
		w.See("slow", Timeouts{Idle: time.Minute}, false)
		w.See("endless", Timeouts{}, true)
		time.Sleep(50 * time.Second)
		w.touch("touched")
		w.touch("used")
		w.touch("unknown") // has ended, for all that is known
		w.See("slow", Timeouts{Idle: time.Minute}, true)
		time.Sleep(20 * time.Minute)
		w.wantEnd("idle", time.Minute)
		w.wantEnd("touched", 110*time.Second)
		w.wantEnd("slow", 110*time.Second)
		w.wantEnd("old", 90*time.Second)
		w.wantEnd("unused", 100*time.Second)
		if w.endedAt("used") != 0 || w.endedAt("endless") != 0 || w.Len() != 2 {
			t.Errorf("ended %v, %d are left", w.ended, w.Len())
		}
	})
}

func TestTimeoutsThatChange(t *testing.T) {
	run(t, func(w *world) {
		for _, id := range []string{"shorter", "longer", "off", "on"} {
			w.See(id, Timeouts{Idle: 10 * time.Minute}, true)
		}
		time.Sleep(2 * time.Minute)
		w.See("shorter", Timeouts{Idle: time.Minute}, true) // over already
		w.See("longer", Timeouts{Idle: 20 * time.Minute}, true)
		w.See("off", Timeouts{}, true)
		w.See("on", Timeouts{Idle: 10 * time.Minute, MaxLifetime: 5 * time.Minute}, true)
		time.Sleep(time.Hour)
		w.wantEnd("shorter", 2*time.Minute)
		w.wantEnd("longer", 20*time.Minute)
		w.wantEnd("on", 5*time.Minute)
		if w.endedAt("off") != 0 {
			t.Error("without timeouts a sandbox ended")
		}
	})
}

// I6: an unknown activity does not end a sandbox; its age does. A pause stops the idle time, not the lifetime, and idle time
// counts from its end.
func TestAPauseIsNotIdling(t *testing.T) {
	run(t, func(w *world) {
		w.See("paused", Timeouts{Idle: time.Minute}, true)
		w.See("old", Timeouts{Idle: time.Minute, MaxLifetime: 5 * time.Minute}, true)
		time.Sleep(30 * time.Second)
		w.See("paused", Timeouts{Idle: time.Minute, Paused: true}, true)
		w.See("old", Timeouts{Idle: time.Minute, MaxLifetime: 5 * time.Minute, Paused: true}, true)
		time.Sleep(570 * time.Second)
		w.See("paused", Timeouts{Idle: time.Minute}, true)
		time.Sleep(10 * time.Minute)
		w.wantEnd("paused", 11*time.Minute)
		w.wantEnd("old", 5*time.Minute)
	})
}

func TestI6NothingEndsWhileASourceIsSilent(t *testing.T) {
	run(t, func(w *world) {
		w.with(func() { w.silent = errors.New("unreachable") })
		w.See("idle", Timeouts{Idle: time.Minute}, true)
		w.See("busy", Timeouts{Idle: time.Minute}, true)
		w.See("old", Timeouts{Idle: time.Minute, MaxLifetime: 5 * time.Minute}, true)
		time.Sleep(10 * time.Minute)
		if w.endedAt("idle") != 0 || w.endedAt("busy") != 0 {
			t.Errorf("ended while a source was silent: %v", w.ended)
		}
		w.wantEnd("old", 5*time.Minute)
		if w.reasons["old"] != MaxLifetime {
			t.Errorf("it ended by %s, which cannot be known", w.reasons["old"])
		}
		w.with(func() { w.silent, w.active = nil, map[string]time.Time{"busy": time.Now()} })
		time.Sleep(10 * time.Minute)
		w.wantEnd("idle", 10*time.Minute)
		w.wantEnd("busy", 11*time.Minute)
	})
}

// A new leader knows activity to within 30 s only if no touch returns that is further from the written activity.
func TestATouchReturnsOnlyOnceItIsWritten(t *testing.T) {
	run(t, func(w *world) {
		w.See("a", Timeouts{Idle: time.Hour}, true)
		for range 10 {
			w.touch("a")
			time.Sleep(8 * time.Second)
		}
		if got := fmt.Sprint(w.written["a"]); got != "[0s 24s 48s 1m12s]" {
			t.Errorf("written: %s", got)
		}
		time.Sleep(30 * time.Second)
		w.with(func() { w.failing = errors.New("the API server is down") })
		if err := w.Touch(w.t.Context(), "a"); err == nil {
			t.Error("a touch returned that a later leader would not know of")
		}
		w.with(func() { w.failing = nil })
		w.touch("a")
		if got := len(w.written["a"]); got != 5 {
			t.Errorf("written %d times", got)
		}
	})
}

func TestATouchMeetsAnEnd(t *testing.T) {
	for name, stays := range map[string]bool{"that happens": false, "that fails": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				hold := make(chan struct{})
				w.with(func() { w.hold = hold })
				w.See("a", Timeouts{Idle: time.Minute}, true)
				time.Sleep(2 * time.Minute)
				touched := make(chan error, 1)
				go func() { touched <- w.Touch(w.t.Context(), "a") }()
				synctest.Wait()
				select {
				case err := <-touched:
					t.Fatalf("answered %v before it was known what became of the sandbox", err)
				default:
				}
				if stays {
					w.with(func() { w.failing = errors.New("the API server is down") })
				}
				w.with(func() { w.hold = nil })
				close(hold)
				synctest.Wait()
				w.with(func() { w.failing = nil })
				err := <-touched
				time.Sleep(30 * time.Second)
				// A touch that could not be written returns an error, and counts here all the same.
				if (err != nil) != stays || (w.endedAt("a") == 0) != stays {
					t.Errorf("touched: %v, ended at %s", err, w.endedAt("a"))
				}
			})
		})
	}
}

// A sandbox is taken over with its age. From then on only this process's monotonic clock counts.
func TestALaterLeaderIsLateAndNeverEarly(t *testing.T) {
	for name, tc := range map[string]struct {
		touches time.Duration // the last one, after the start; -1: none
		flushed time.Duration // the written one of them
		handed  time.Duration // when the other one takes over
	}{
		"never touched":              {-1, -1, 2 * time.Minute},
		"touched once":               {time.Minute, time.Minute, 2 * time.Minute},
		"touched again just now":     {89 * time.Second, time.Minute, 90 * time.Second},
		"touched again, at the edge": {89900 * time.Millisecond, time.Minute, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				const timeout = 10 * time.Minute
				time.Sleep(tc.handed)
				now := time.Now()
				written := Written{Claimed: w.began.Truncate(time.Second), Started: w.began.Truncate(time.Second)}
				if tc.flushed >= 0 {
					written.Active = w.began.Add(tc.flushed).Truncate(time.Second)
				}
				w.Take("a", TakeOver(Timeouts{Idle: timeout}, written, true, now.Sub, now))
				time.Sleep(time.Hour)
				want := max(0, tc.touches) + timeout
				if got := w.endedAt("a"); got < want || got > want+35*time.Second {
					t.Errorf("ended at %s, want it within 35s after %s", got, want)
				}
			})
		})
	}
}

// I10: only live sandboxes have entries.
func TestI10MemoryIsBoundedBySandboxes(t *testing.T) {
	run(t, func(w *world) {
		for i := range 1000 {
			id := fmt.Sprint(i)
			w.See(id, Timeouts{Idle: time.Duration(1+i%100) * time.Second}, true)
			w.touch(id)
			if i%3 == 0 {
				w.Forget(id)
			}
		}
		time.Sleep(3 * time.Minute)
		if w.Len() != 0 || w.due.Len() != 0 {
			t.Errorf("%d entries, %d in the queue", w.Len(), w.due.Len())
		}
		for i := range 1000 {
			if got, want := w.endedAt(fmt.Sprint(i)), time.Duration(1+i%100)*time.Second; i%3 != 0 && (got < want || got > want+5*time.Second) {
				t.Errorf("%d ended at %s, want %s", i, got, want)
			}
		}
	})
}
