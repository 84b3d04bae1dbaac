// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/store"
)

// TestEtcdWithoutQuorum: every call ends within seconds and says why; reads that allow it go on, and so does all of it later.
func TestEtcdWithoutQuorum(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{Members: 3})
	o := inEtcd(e)
	s := openEtcd(t, o)
	_, err := store.CompareAndSwap(t.Context(), s, "a", 0, []byte("1"))
	must.Succeed(t, err)
	events := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	after, err := s.Revision()
	must.Succeed(t, err)
	go func() {
		watched <- s.Watch(ctx, "", after, func(all []store.Event) { events <- all[0].Key })
	}()
	e.Freeze(0)
	e.Stop(1)
	for name, call := range map[string]func() error{
		"get":    func() error { _, _, err := s.Get(t.Context(), "a"); return err },
		"range":  func() error { _, err := s.Range(t.Context(), "", "", 0); return err },
		"commit": func() error { _, err := store.CompareAndSwap(t.Context(), s, "a", 1, nil); return err },
		"lazy": func() error {
			_, err := s.Commit(t.Context(), store.Txn{Deletes: []string{"x"}, Lazy: true})
			return err
		},
		"open": func() error { _, err := store.OpenEtcd(t.Context(), o); return err },
	} {
		begin := time.Now()
		if err := call(); !errors.Is(err, store.ErrUnavailable) || name != "open" && !errors.Is(s.Failure(), store.ErrUnavailable) {
			t.Errorf("%s: %v, the store says %v", name, err, s.Failure())
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
	readStale(t.Context(), t, s)
	e.Start(1)
	wait.For(t, time.Minute, "writes to continue", func(ctx context.Context) error { return put(ctx, s, "b") })
	must.Succeed(t, s.Failure())
	select {
	case got := <-events:
		if got != "b" {
			t.Errorf("the watch has %q", got)
		}
	case err := <-watched:
		t.Fatalf("the watch ended without a quorum: %v", err)
	}
	e.Thaw(0)
	cancel()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// readStale checks that a read that may be stale has the entry, and does not end the failure.
func readStale(ctx context.Context, t *testing.T, s *store.Etcd) {
	t.Helper()
	if entry, ok, err := s.Get(store.AllowStale(ctx), "a"); err != nil || !ok || string(entry.Value) != "1" {
		t.Errorf("a read that may be stale: %+v %t %v", entry, ok, err)
	}
	if !errors.Is(s.Failure(), store.ErrUnavailable) {
		t.Errorf("after it the store says %v", s.Failure())
	}
}

// TestEtcdWithoutQuorumInLittleTime: callers that have less time than a call's own bound show the failure as well, and a read that may be
// stale has time left for the member that responds.
func TestEtcdWithoutQuorumInLittleTime(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{Members: 3})
	o := inEtcd(e)
	probed, claiming, reading := openEtcd(t, o), openEtcd(t, o), openEtcd(t, o)
	_, err := store.CompareAndSwap(t.Context(), probed, "a", 0, []byte("1"))
	must.Succeed(t, err)
	e.Freeze(0)
	e.Stop(1)
	for name, tc := range map[string]struct {
		*store.Etcd
		time time.Duration
		call func(ctx context.Context) error
	}{
		"a probe": {probed, 900 * time.Millisecond, func(ctx context.Context) error {
			_, _, err := probed.Get(ctx, "probe")
			return err
		}},
		"a claim": {claiming, 3 * time.Second, func(ctx context.Context) error { return put(ctx, claiming, "b") }},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), tc.time)
		err := tc.call(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if !errors.Is(tc.Failure(), store.ErrUnavailable) {
			t.Errorf("after %s the store says %v", name, tc.Failure())
		}
	}
	e.Stop(0) // one member is left, so that the time does not depend on which one is tried
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	readStale(ctx, t, reading)
	e.Start(1)
	wait.For(t, time.Minute, "writes to continue", func(ctx context.Context) error { return put(ctx, probed, "c") })
	must.Succeed(t, probed.Failure())
}

// While the member does not respond, a call ends with its caller's time, and a call with more time is tried again. A read that may be stale
// says nothing about the quorum, so only another read ends the failure.
func TestEtcdCallsThatHang(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	s := openEtcd(t, inEtcd(e))
	must.Succeed(t, put(t.Context(), s, "a"))
	get := func(ctx context.Context, patience time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, ok, err := s.Get(ctx, "a")
		if err == nil && !ok {
			t.Error("the entry is gone")
		}
		return err
	}
	stale := store.AllowStale(t.Context())
	e.Freeze(0)
	defer e.Thaw(0)
	var err error
	for err == nil { // until it has stopped
		err = get(t.Context(), 900*time.Millisecond)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(s.Failure(), store.ErrUnavailable) {
		t.Errorf("in little time: %v, the store says %v", err, s.Failure())
	}
	if err := get(stale, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("in little time, although it may be stale: %v", err)
	}
	read := make(chan error, 1)
	go func() { read <- get(stale, time.Minute) }()
	select {
	case err := <-read:
		t.Fatalf("what may be stale, before the member responds: %v", err)
	case <-time.After(1100 * time.Millisecond): // longer than one attempt, and far from callTimeout
	}
	e.Thaw(0)
	if err := <-read; err != nil || !errors.Is(s.Failure(), store.ErrUnavailable) {
		t.Errorf("what may be stale: %v, the store says %v", err, s.Failure())
	}
	wait.For(t, time.Minute, "reads to continue", func(ctx context.Context) error { return get(ctx, time.Minute) })
	must.Succeed(t, s.Failure())
}
