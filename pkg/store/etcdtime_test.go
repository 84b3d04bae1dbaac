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
	if entry, ok, err := reading.Get(store.AllowStale(ctx), "a"); err != nil || !ok || string(entry.Value) != "1" {
		t.Errorf("a read that may be stale: %+v %t %v", entry, ok, err)
	}
	if !errors.Is(reading.Failure(), store.ErrUnavailable) {
		t.Errorf("after it the store says %v", reading.Failure())
	}
	e.Start(1)
	wait.For(t, time.Minute, "writes to continue", func(ctx context.Context) error { return put(ctx, probed, "c") })
	must.Succeed(t, probed.Failure())
}
