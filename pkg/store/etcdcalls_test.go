// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
)

// A call returns an error of etcd at once. It is tried again only if a member does not respond.
func TestEtcdCallsThatAreRefused(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Options{})
	e, err := OpenEtcd(t.Context(), EtcdOptions{Endpoints: server.Endpoints(), Prefix: "/test", Kind: "claims", Schema: 1})
	must.Succeed(t, err)
	defer e.Close()
	var revision uint64
	for range 3 {
		revision, err = e.Commit(t.Context(), Txn{Puts: []Put{{Key: "a"}}})
		must.Succeed(t, err)
	}
	if latest, err := e.latest(t.Context()); err != nil || latest != revision {
		t.Errorf("the latest revision is %d, %v; want %d", latest, err, revision)
	}
	_, err = e.client.Compact(t.Context(), int64(revision))
	must.Succeed(t, err)
	began := time.Now()
	_, err = e.pages(t.Context(), "", "", 1, 1, func(*mvccpb.KeyValue) error { return nil })
	// A read that is tried again goes on until callTimeout.
	if took := time.Since(began); !errors.Is(err, rpctypes.ErrCompacted) || took >= callTimeout {
		t.Errorf("reading a compacted revision took %s: %v", took, err)
	}
}

// The end of a caller's time is a failure of etcd once etcd has had time to respond. Then a success ends it.
func TestWhatIsAFailureOfEtcd(t *testing.T) {
	ended, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	left, leave := context.WithCancel(t.Context())
	leave()
	for name, tc := range map[string]struct {
		ctx    context.Context
		waited time.Duration
		err    error
		fails  bool
		want   error
	}{
		"the caller's time":           {ended, failsAfter, context.DeadlineExceeded, true, context.DeadlineExceeded},
		"a caller with too little":    {ended, 0, context.DeadlineExceeded, false, context.DeadlineExceeded},
		"the caller leaves":           {left, time.Minute, context.Canceled, false, context.Canceled},
		"the call's own time":         {t.Context(), callTimeout, context.DeadlineExceeded, true, ErrUnavailable},
		"a part of a caller's little": {t.Context(), 0, context.DeadlineExceeded, false, ErrUnavailable},
		"a refusal":                   {t.Context(), 0, rpctypes.ErrNoSpace, true, rpctypes.ErrNoSpace},
	} {
		e := &Etcd{}
		err := e.responded(tc.ctx, time.Now().Add(-tc.waited), tc.err)
		if failed := e.failure.Load() != nil; failed != tc.fails || !errors.Is(err, tc.want) {
			t.Errorf("%s: failed %t, %v", name, failed, err)
		}
		if err := e.responded(tc.ctx, time.Now(), nil); err != nil || e.failure.Load() != nil {
			t.Errorf("%s, and then a success: %v, %v", name, err, e.failure.Load())
		}
	}
}

// An error of the connection is ErrUnavailable. A refusal of etcd is not, and keeps its error.
func TestWhatIsAnErrorOfEtcd(t *testing.T) {
	for name, tc := range map[string]struct {
		err, want   error
		unavailable bool
	}{
		"too many changes": {rpctypes.ErrTooManyOps, ErrTooLarge, false},
		"too many bytes":   {rpctypes.ErrRequestTooLarge, ErrTooLarge, false},
		"no space":         {rpctypes.ErrNoSpace, rpctypes.ErrNoSpace, false},
		"no permission":    {rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionDenied, false},
		"a wrong password": {rpctypes.ErrAuthFailed, rpctypes.ErrAuthFailed, false},
		"compacted":        {rpctypes.ErrCompacted, rpctypes.ErrCompacted, false},
		"no leader":        {rpctypes.ErrNoLeader, rpctypes.ErrNoLeader, true},
		"etcd's own time":  {rpctypes.ErrTimeout, rpctypes.ErrTimeout, true},
		"no time":          {context.DeadlineExceeded, ErrUnavailable, true},
		"no connection":    {errors.New("connection refused"), ErrUnavailable, true},
	} {
		if err := explain(tc.err); !errors.Is(err, tc.want) || errors.Is(err, ErrUnavailable) != tc.unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The limits are those of etcd, minus one change and 16 KiB. Each operation counts 160 bytes more than its key and its value.
func TestWhatIsTooLargeForEtcd(t *testing.T) {
	some := func(conditions, puts, deletes, size int) (txn Txn) {
		for range conditions {
			txn.If = append(txn.If, Condition{Key: "key"})
		}
		for range puts {
			txn.Puts = append(txn.Puts, Put{Key: "key", Value: make([]byte, size)})
		}
		for range deletes {
			txn.Deletes = append(txn.Deletes, "key")
		}
		return txn
	}
	if got, want := sizeOf(some(2, 3, 4, 1000)), 2*163+3*1163+4*163; got != want {
		t.Errorf("the size is %d, want %d", got, want)
	}
	const most = 1_556_480 // 1536 KiB minus 16 KiB
	for name, tc := range map[string]struct {
		txn  Txn
		fits bool
	}{
		"127 changes":          {some(0, 100, 27, 0), true},
		"128 changes":          {some(0, 100, 28, 0), false},
		"127 conditions":       {some(127, 0, 1, 0), true},
		"128 conditions":       {some(128, 0, 1, 0), false},
		"as many bytes as fit": {some(0, 1, 0, most-163), true},
		"one byte more":        {some(0, 1, 0, most-162), false},
	} {
		if err := fits(tc.txn); (err == nil) != tc.fits || err != nil && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A read that may be stale leaves half of its caller's time for the member that responds.
func TestEtcdCallsHaveHalfOfTheTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	half, end := halfOf(ctx)
	defer end()
	deadline, ok := half.Deadline()
	if left := time.Until(deadline); !ok || left > 30*time.Minute || left < 29*time.Minute {
		t.Errorf("of an hour %s are left, %t", left, ok)
	}
	half, end = halfOf(t.Context())
	defer end()
	if deadline, ok := half.Deadline(); ok {
		t.Errorf("without a deadline there is one at %s", deadline)
	}
}
