// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// remote is the API server's side of the lock: it takes its time and may lose the answer.
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
	if err := lock.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	check(14*time.Second, true)
	check(15*time.Second, false) // 1 s + 15 s less the margin

	// A slow write counts from when it was sent.
	far.write = func() error { now += 9 * time.Second; return nil }
	now = 20 * time.Second
	if err := lock.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	check(33*time.Second, true)
	check(34*time.Second, false)

	// One whose outcome is unknown renews nothing.
	lost := errors.New("connection lost")
	far.write = func() error { return nil }
	now = 40 * time.Second
	if err := lock.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	far.write = func() error { return lost }
	now = 45 * time.Second
	if err := lock.Update(t.Context(), mine); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	check(53*time.Second, true)
	check(54*time.Second, false)

	// Giving up counts at once, also when the answer is lost.
	far.write = func() error { return nil }
	now = 60 * time.Second
	if err := lock.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	far.write = func() error { return lost }
	_ = lock.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1})
	check(61*time.Second, false)
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
		if err := lock.Update(t.Context(), record); err != nil {
			t.Fatal(err)
		}
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
	now += 15*time.Second - margin
	if lock.Held() {
		t.Errorf("held %v after the last write", 15*time.Second-margin)
	}
	update(mine, 3)
	// Giving up does not wait, nor does taking the lease anew.
	update(resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}, 4)
	update(mine, 5)
}

func TestBoottimeAdvances(t *testing.T) {
	if a, b := boottime(), boottime(); a <= 0 || b < a {
		t.Errorf("boottime went from %v to %v", a, b)
	}
}
