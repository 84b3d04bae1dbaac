// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/worker/internal/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testHistory is a history over a store that outlives it.
type testHistory struct {
	*history.History
	t *testing.T
}

func open(t *testing.T, s store.Store, change ...func(*history.Options)) *testHistory {
	t.Helper()
	opts := history.Options{Store: s, Time: clock.RealClock{}, Metrics: prometheus.NewRegistry()}
	for _, f := range change {
		f(&opts)
	}
	h, err := history.Open(t.Context(), opts)
	must.Succeed(t, err)
	return &testHistory{h, t}
}

// unclosed keeps a store open, for the next history on it.
type unclosed struct{ store.Store }

func (unclosed) Close() error { return nil }

func id(i int) string { return fmt.Sprintf("%026d-east", i) }

func record(i int, change ...func(*history.Record)) history.Record {
	r := history.Record{Sandbox: &sandboxv1.Sandbox{Id: id(i), Phase: sandboxv1.Phase_ENDED, StopReason: "Released", Team: "red"}}
	for _, f := range change {
		f(&r)
	}
	return r
}

func keyed(hash string, attempt int32) func(*history.Record) {
	return func(r *history.Record) { r.KeyHash, r.Attempt, r.ForHub = hash, attempt, true }
}

func (b *testHistory) keep(r history.Record) bool {
	b.t.Helper()
	fresh, err := b.Keep(context.Background(), r)
	must.Succeed(b.t, err)
	return fresh
}

func (b *testHistory) ids(limit int, match func(*sandboxv1.Sandbox) bool) (all []string) {
	b.t.Helper()
	for after := ""; ; {
		page, next, err := b.List(b.t.Context(), after, limit, match)
		must.Succeed(b.t, err)
		if len(page) > limit {
			b.t.Fatalf("a page has %d records, want %d at most", len(page), limit)
		}
		for _, s := range page {
			all = append(all, s.GetId())
		}
		if next == "" {
			return all
		}
		if next <= after {
			b.t.Fatalf("after %q comes %q", after, next)
		}
		after = next
	}
}

func anySandbox(*sandboxv1.Sandbox) bool { return true }

// The next process has what was kept, each sandbox once.
func TestRecordsOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	bolt := func() store.Store {
		s, err := store.OpenBolt(path, history.Kind)
		must.Succeed(t, err)
		return s
	}
	b := open(t, bolt())
	var wg sync.WaitGroup
	var fresh atomic.Int32
	for i := range 60 { // each sandbox three times, at once
		wg.Go(func() {
			r := record(i % 20)
			if i%2 == 0 && i < 20 {
				r = record(i%20, keyed(fmt.Sprint("k", i), 1))
			}
			if b.keep(r) {
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	if fresh.Load() != 20 {
		t.Errorf("%d records were new, want 20", fresh.Load())
	}
	unsent := b.Unsent()
	must.Succeed(t, b.Close())
	next := open(t, bolt())
	defer next.Close()
	all := next.ids(3, anySandbox)
	if len(all) != 20 || !slices.IsSorted(all) || len(slices.Compact(all)) != 20 {
		t.Errorf("there are %v", all)
	}
	if next.Unsent() != unsent {
		t.Errorf("%d are to be sent to the hub, before it was %d", next.Unsent(), unsent)
	}
	if next.keep(record(3)) {
		t.Error("a record was kept twice")
	}
	got, err := next.Get(t.Context(), id(3))
	if err != nil || got.GetStopReason() != "Released" {
		t.Errorf("the record is %v, %v", got, err)
	}
	if got, err := next.Get(t.Context(), id(99)); got != nil || err != nil {
		t.Errorf("of nothing: %v, %v", got, err)
	}
}

// What the hub has stored is not sent again, by this process or the next.
func TestTheHubGetsARecordUntilItHasStoredIt(t *testing.T) {
	s := unclosed{store.NewMemory()}
	b := open(t, s)
	for i := range 10 {
		b.keep(record(i, keyed(fmt.Sprint("k", i), 1)))
	}
	upTo, records, err := b.ToSend(t.Context(), 4)
	if err != nil || len(records) != 4 || records[0].GetKeyHash() != "k0" {
		t.Fatalf("to send: %v, %v", records, err)
	}
	b.Sent(upTo)
	b.keep(record(10)) // what was acknowledged is written by now
	must.Succeed(t, b.Close())
	next := open(t, s)
	defer next.Close()
	if _, records, _ := next.ToSend(t.Context(), 100); len(records) != 6 || records[0].GetKeyHash() != "k4" {
		t.Errorf("still to send: %v", records)
	}
}

// broken is a store that fails on request: before a write, or after it.
type broken struct {
	store.Store
	before, after atomic.Bool
}

func (b *broken) Commit(ctx context.Context, txn store.Txn) (uint64, error) {
	if b.before.Load() {
		return 0, syscall.ENOSPC
	}
	n, err := b.Store.Commit(ctx, txn)
	if b.after.Load() {
		return 0, syscall.EIO
	}
	return n, err
}

// A full disk keeps nothing, and loses nothing; a write that fails after it was carried out counts once.
func TestAFailedWriteNeitherLosesNorDoubles(t *testing.T) {
	for name, fail := range map[string]func(*broken) *atomic.Bool{
		"full":    func(b *broken) *atomic.Bool { return &b.before },
		"unclear": func(b *broken) *atomic.Bool { return &b.after },
	} {
		t.Run(name, func(t *testing.T) {
			disk := &broken{Store: unclosed{store.NewMemory()}}
			b := open(t, disk)
			b.keep(record(0))
			fail(disk).Store(true)
			for range 3 {
				if _, err := b.Keep(t.Context(), record(1)); err == nil {
					// An earlier try was found to have been written.
					if name == "full" {
						t.Fatal("a full disk kept a record")
					}
				}
			}
			fail(disk).Store(false)
			b.keep(record(1))
			b.keep(record(2))
			if got := b.ids(10, anySandbox); len(got) != 3 || b.Len() != 3 {
				t.Errorf("there are %v, %d by count", got, b.Len())
			}
			entries, err := disk.Range(t.Context(), "log/", "", 0)
			if err != nil || len(entries) != 3 {
				t.Errorf("the log has %d lines, %v", len(entries), err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// I10: records are dropped by age and by number, oldest first, and numbers are never used twice.
func TestI10OldRecordsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := unclosed{store.NewMemory()}
		few := func(o *history.Options) { o.MaxRecords, o.Retention = 5, time.Hour }
		b := open(t, s, few)
		for i := range 8 {
			b.keep(record(i, keyed(fmt.Sprint("k", i), 1)))
		}
		synctest.Wait()
		if got := b.ids(10, anySandbox); len(got) != 5 || got[0] != id(3) {
			t.Errorf("of eight there are %v", got)
		}
		if _, ok := b.ByKey("k0"); ok || b.Unsent() != 5 {
			t.Errorf("what was dropped is remembered; %d to send", b.Unsent())
		}
		time.Sleep(time.Hour + 2*time.Minute)
		synctest.Wait()
		if got := b.ids(10, anySandbox); len(got) != 0 || b.Len() != 0 || b.Unsent() != 0 {
			t.Errorf("after an hour there are %v", got)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		next := open(t, s, few)
		next.keep(record(20))
		entries, err := s.Range(t.Context(), "log/", "", 0)
		if err != nil || len(entries) != 1 || entries[0].Key != "log/0000000000000009" {
			t.Errorf("the log goes on with %v, %v", entries, err)
		}
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	})
}

// I2: a key returns its record as long as the hub may ask for it, and starts again after that.
func TestI2AKeyIsKnownUntilTheHubHasItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, store.NewMemory())
		defer b.Close()
		b.keep(record(0, keyed("sent", 1)))
		upTo, _, _ := b.ToSend(t.Context(), 10)
		b.Sent(upTo)
		b.keep(record(1, keyed("unsent", 1)))
		b.keep(record(2, keyed("unsent", 1))) // ended beside it, and was never returned
		if k, ok := b.ByKey("unsent"); !ok || k.ID != id(1) {
			t.Errorf("the key answers %v", k)
		}
		time.Sleep(history.KeyRetention + time.Minute)
		if _, ok := b.ByKey("sent"); ok {
			t.Error("a key is honoured for longer than 24 h")
		}
		if _, ok := b.ByKey("unsent"); !ok {
			t.Error("I2: a key was forgotten that the hub may ask for")
		}
		if keys := b.Keys(); len(keys) != 1 {
			t.Errorf("the keys are %v", keys)
		}
		b.keep(record(3, keyed("sent", 1)))
		if k, _ := b.ByKey("sent"); k.ID != id(3) {
			t.Errorf("used again, the key answers %v", k)
		}
		if _, ok := b.ByKey(""); ok {
			t.Error("no key at all has a record")
		}
	})
}

func TestListFiltersAndPages(t *testing.T) {
	b := open(t, store.NewMemory())
	defer b.Close()
	for i := range 700 {
		b.keep(record(i, func(r *history.Record) {
			if i%100 == 7 {
				r.Sandbox.Team = "blue"
			}
			if i < 3 {
				r.Sandbox.FailureMessage = string(make([]byte, 400<<10))
			}
		}))
	}
	blue := b.ids(2, func(s *sandboxv1.Sandbox) bool { return s.GetTeam() == "blue" })
	if len(blue) != 7 || blue[0] != id(7) {
		t.Errorf("blue are %v", blue)
	}
	page, next, err := b.List(t.Context(), "", 100, anySandbox)
	if err != nil || len(page) != 1 || next != id(0) {
		t.Errorf("a page of large records has %d, next %q, %v", len(page), next, err)
	}
	if all := b.ids(1000, anySandbox); len(all) != 700 {
		t.Errorf("%d in all", len(all))
	}
}

// Invalid text keeps no Pod waiting forever.
func TestTextThatIsNoTextIsMended(t *testing.T) {
	b := open(t, store.NewMemory())
	defer b.Close()
	r := record(0)
	r.Sandbox.FailureMessage, r.Sandbox.Metadata = "a\xffb", map[string]string{"k\xff": "v\xff"}
	b.keep(r)
	got, err := b.Get(t.Context(), id(0))
	if err != nil || got.GetFailureMessage() != "a�b" || got.GetMetadata()["k�"] != "v�" || got.GetTeam() != "red" {
		t.Errorf("the record is %v, %v", got, err)
	}
}

func TestAClosedHistoryTakesNothing(t *testing.T) {
	b := open(t, store.NewMemory())
	must.Succeed(t, b.Close())
	if _, err := b.Keep(t.Context(), record(0)); !errors.Is(err, history.ErrClosed) {
		t.Errorf("a closed history: %v", err)
	}
}
