// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"navix.sh/atoll/e2e/must"
)

// remote is the API server's side of the lock: it is slow and may lose the response.
type remote struct {
	resourcelock.Interface
	write func() error
}

func (r *remote) Identity() string { return "me" }
func (r *remote) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return r.write()
}
func (r *remote) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	return r.write()
}

func TestHeld(t *testing.T) {
	var now time.Duration
	far := &remote{write: func() error { return nil }}
	lock := Wrap(far)
	lock.now = func() time.Duration { return now }
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 15}
	check := func(at time.Duration, want bool) {
		t.Helper()
		now = at
		if lock.Held() != want {
			t.Errorf("at %v: held %v, want %v", at, !want, want)
		}
	}

	check(time.Second, false)
	must.Succeed(t, lock.Create(t.Context(), mine))
	check(14*time.Second, true)
	check(15*time.Second, false) // 1 s + 15 s less the margin

	// A slow write counts from when it was sent.
	far.write = func() error { now += 4 * time.Second; return nil }
	now = 10 * time.Second
	must.Succeed(t, lock.Update(t.Context(), mine))
	check(14*time.Second, true)
	check(15*time.Second, false) // 10 s + 6 s less the margin

	// After a slow write the next one is for longer.
	far.write = func() error { return nil }
	now = 14 * time.Second
	must.Succeed(t, lock.Update(t.Context(), mine))
	check(27*time.Second, true)
	check(28*time.Second, false)

	// A write whose outcome is unknown renews nothing, and the next one is for longer again.
	lost := errors.New("connection lost")
	now = 20 * time.Second
	must.Succeed(t, lock.Update(t.Context(), mine))
	far.write = func() error { return lost }
	now = 22 * time.Second
	if err := lock.Update(t.Context(), mine); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	check(24*time.Second, true)
	check(25*time.Second, false)
	far.write = func() error { return nil }
	now = 24 * time.Second
	must.Succeed(t, lock.Update(t.Context(), mine))
	check(37*time.Second, true)
	check(38*time.Second, false)

	// A release counts at once, also when the response is lost.
	now = 30 * time.Second
	must.Succeed(t, lock.Update(t.Context(), mine))
	far.write = func() error { return lost }
	_ = lock.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1})
	check(31*time.Second, false)
}

// I2: other processes may have seen a shorter lease although its writer has not.
func TestAShorterLeaseCountsAtOnce(t *testing.T) {
	var now time.Duration
	lost := errors.New("connection lost")
	far := &remote{write: func() error { return nil }}
	lock := WrapWith(far, func() time.Duration { return now })
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 15}
	must.Succeed(t, lock.Update(t.Context(), mine))
	now = 2 * time.Second
	far.write = func() error {
		if now = 2*time.Second + shortDuration - margin; lock.Held() {
			t.Error("held for longer than the write says")
		}
		return lost
	}
	if err := lock.Update(t.Context(), mine); !errors.Is(err, lost) || lock.Held() {
		t.Errorf("after the write: %v, held %t", err, lock.Held())
	}
}

// I2: a process that was suspended while another one led and released the lease must not lead again, whichever process holds it
// now. It has claims under way that the other one has carried out again. If no other one led, it goes on, unless that took long.
func TestALapsedLeaseIsNotTakenAgain(t *testing.T) {
	acquired := metav1.NewTime(time.Unix(1_000_000, 123_456_789))
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 15, LeaderTransitions: 3, AcquireTime: acquired}
	for name, tc := range map[string]struct {
		suspended time.Duration
		meanwhile func(lock *Lock, next *resourcelock.LeaderElectionRecord)
		again     bool
	}{
		"another one led": {10 * time.Second, func(_ *Lock, next *resourcelock.LeaderElectionRecord) { next.LeaderTransitions++ }, false},
		"the Lease was made anew": {10 * time.Second, func(_ *Lock, next *resourcelock.LeaderElectionRecord) {
			next.AcquireTime = metav1.NewTime(acquired.Add(time.Second))
		}, false},
		"given up": {0, func(lock *Lock, _ *resourcelock.LeaderElectionRecord) {
			if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}); err != nil {
				t.Error(err)
			}
		}, false},
		"for long":             {14 * time.Second, nil, false},
		"no other one has led": {13 * time.Second, nil, true},
		"no other one has led, by the Lease": {13 * time.Second, func(_ *Lock, next *resourcelock.LeaderElectionRecord) {
			next.AcquireTime = metav1.NewTime(acquired.Truncate(time.Microsecond))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Second
			writes := 0
			lock := WrapWith(&remote{write: func() error { writes++; return nil }}, func() time.Duration { return now })
			must.Succeed(t, lock.Update(t.Context(), mine))
			now += 2 * renewInterval
			must.Succeed(t, lock.Update(t.Context(), mine))
			if !lock.Held() {
				t.Fatal("a lease that was just renewed is not held")
			}
			now += tc.suspended
			if tc.suspended > 0 && lock.Held() {
				t.Fatalf("held %s after the renewal", tc.suspended)
			}
			next := mine
			if tc.meanwhile != nil {
				tc.meanwhile(lock, &next)
			}
			before := writes
			err := lock.Update(t.Context(), next)
			if tc.again {
				if err != nil || !lock.Held() || closed(lock.Lapsed()) {
					t.Errorf("taking it again: %v, held %t", err, lock.Held())
				}
				return
			}
			if err := errors.Join(err, lock.Create(t.Context(), next)); !errors.Is(err, ErrLapsed) || writes != before ||
				lock.Held() || !closed(lock.Lapsed()) {
				t.Errorf("taking it again: %v, %d writes, held %t", err, writes-before, lock.Held())
			}
		})
	}
}

func TestRenewsNoMoreThanNeeded(t *testing.T) {
	var now time.Duration
	writes := 0
	far := &remote{write: func() error { writes++; return nil }}
	lock := Wrap(far)
	lock.now = func() time.Duration { return now }
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 15}
	update := func(record resourcelock.LeaderElectionRecord, want int) {
		t.Helper()
		must.Succeed(t, lock.Update(t.Context(), record))
		if writes != want {
			t.Errorf("at %v: %d writes, want %d", now, writes, want)
		}
	}

	update(mine, 1)
	for now = 0; now < renewInterval; now += renewInterval / 4 {
		update(mine, 1)
	}
	update(mine, 2)
	// The lease holds from the last write, not from the last time that leader election wished to renew it.
	last := now
	now = last + shortDuration - margin
	if lock.Held() {
		t.Errorf("held %v after the last write", shortDuration-margin)
	}
	// A release does not wait.
	now = last
	update(resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}, 3)
}

// crossed is a lease whose API server carries out a renewal when it gets a release; so often.
type crossed struct {
	resourcelock.Interface
	holder   string
	renewals int
	other    bool // another process leads by then
}

func (c *crossed) Identity() string { return "me" }

func (c *crossed) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: c.holder}, nil, nil
}

func (c *crossed) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if c.renewals > 0 {
		c.renewals--
		if c.other {
			c.holder = "another"
		}
		return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "atoll-worker", errors.New("modified"))
	}
	c.holder = record.HolderIdentity
	return nil
}

// A lease is released also if a renewal that was cancelled is carried out before; that of another process never.
func TestAReleaseThatARenewalCrosses(t *testing.T) {
	for _, tc := range []struct {
		renewals int
		other    bool
		holder   string
	}{{0, false, ""}, {1, false, ""}, {2, false, ""}, {3, false, "me"}, {1, true, "another"}} {
		c := &crossed{holder: "me", renewals: tc.renewals, other: tc.other}
		err := Wrap(c).Update(t.Context(), resourcelock.LeaderElectionRecord{})
		if c.holder != tc.holder || (err == nil) != (tc.holder == "") {
			t.Errorf("%+v: the holder is %q, %v", tc, c.holder, err)
		}
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Replicas find the leader by its lease.
func TestTheLeaseTellsWhereItsHolderIs(t *testing.T) {
	for name, tc := range map[string]struct {
		identity, holder, address string
	}{
		"another one":              {"a_1@10.0.0.1:8444", "b_2@10.0.0.2:8444", "10.0.0.2:8444"},
		"another one, without one": {"a_1@10.0.0.1:8444", "b_2", ""},
		"by IPv6":                  {"a_1", "b_2@[2001:db8::2]:8444", "[2001:db8::2]:8444"},
		"no holder":                {"a_1@10.0.0.1:8444", "", ""},
		"itself, from before":      {"a_1@10.0.0.1:8444", "a_1@10.0.0.1:8444", ""},
		"its predecessor":          {"a_2@10.0.0.1:8444", "a_1@10.0.0.1:8444", ""},
	} {
		l := Wrap(&told{identity: tc.identity, holder: tc.holder})
		if address, self := l.Address(); address != "" || self {
			t.Errorf("%s: unread, the lease tells %q", name, address)
		}
		if _, _, err := l.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if address, self := l.Address(); address != tc.address || self {
			t.Errorf("%s: %q, itself: %t, want %q", name, address, self, tc.address)
		}
	}
	l := Wrap(&told{identity: "a_1@10.0.0.1:8444"})
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "a_1@10.0.0.1:8444", LeaseDurationSeconds: 15}
	must.Succeed(t, l.Create(t.Context(), mine))
	if address, self := l.Address(); address != "10.0.0.1:8444" || !self {
		t.Errorf("leading: %q, itself: %t", address, self)
	}
}

// told is a lease with a holder.
type told struct {
	resourcelock.Interface
	identity, holder string
}

func (f *told) Identity() string { return f.identity }

func (f *told) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: f.holder}, nil, nil
}

func (f *told) Create(context.Context, resourcelock.LeaderElectionRecord) error { return nil }
