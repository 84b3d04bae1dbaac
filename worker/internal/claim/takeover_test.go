// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock/offset"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/idle"
)

// A leader that takes over goes by what is written down: late, and never early.
func TestTheNextLeaderTakesTimeoutsOver(t *testing.T) {
	w := newWorld(t)
	w.makePool(5)
	l := w.lead(1)
	l.awaitIdle("p", 5)
	began := time.Now()
	var (
		untouched = l.mustCreate(idleTimeout(6 * time.Second))
		touched   = l.mustCreate(idleTimeout(6 * time.Second))
		old       = l.mustCreate(maxLifetime(5 * time.Second))
		longIdle  = l.mustCreate(idleTimeout(40 * time.Second))
		unflushed = l.mustCreate(idleTimeout(25 * time.Second))
	)
	l.mustTouch(touched.GetId())
	l.mustTouch(unflushed.GetId())
	l.stop()
	l.blind()
	// As if all of that had been an hour ago, and the last touch of these a minute and 20 s.
	w.backdate(longIdle.GetPod(), time.Hour, time.Minute)
	w.backdate(unflushed.GetPod(), time.Hour, 20*time.Second)
	took := time.Now() // before it leads: leading takes longer than the timeouts allow for, on a busy machine
	next := w.lead(2)
	next.wantRunning(unflushed.GetId(), "it may have been touched 30 s after what is written down")
	next.awaitEnd(old.GetId(), began, 5*time.Second, idle.MaxLifetime)
	next.awaitEnd(untouched.GetId(), began, 6*time.Second, idle.IdleTimeout)
	next.awaitEnd(touched.GetId(), took, 6*time.Second, idle.IdleTimeout)
	next.awaitEnd(longIdle.GetId(), took, 9*time.Second, idle.IdleTimeout) // 60 s - 30 s of its 40 s have passed, to a second
	next.wantRunning(unflushed.GetId(), "it may have been touched 30 s after what is written down")
}

// I6: a restored etcd has lost when sandboxes were active last.
func TestI6ARestoredEtcdEndsNoSandboxEarly(t *testing.T) {
	w := newWorld(t)
	w.makePool(3)
	l := w.lead(1)
	l.awaitIdle("p", 3)
	quiet, old, early := l.mustCreate(idleTimeout(3*time.Second)), l.mustCreate(maxLifetime(time.Minute)), l.mustCreate(idleTimeout(time.Minute))
	l.stop()
	l.blind()
	for _, s := range []*sandboxv1.Sandbox{quiet, old, early} {
		w.backdate(s.GetPod(), time.Hour, time.Hour)
	}
	next := w.follow()
	next.DistrustActivity()
	began := time.Now()
	next.takeOver(2)
	next.awaitEnd(old.GetId(), began, 0, idle.MaxLifetime)
	next.awaitEnd(quiet.GetId(), began, 3*time.Second, idle.IdleTimeout)
	next.DistrustActivity() // the hub's word may come late
	next.wantRunning(early.GetId(), "it may have been active a moment ago")
}

// backdate writes times on a Pod as an earlier leader would have.
func (w *world) backdate(pod string, claimed, active time.Duration) {
	w.t.Helper()
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q,%q:%q}}}`, v1alpha1.SandboxClaimedAtAnnotationKey, ago(claimed),
		v1alpha1.SandboxStartedAtAnnotationKey, ago(claimed), v1alpha1.SandboxLastActiveAnnotationKey, ago(active))
	w.must(w.live.Patch(w.t.Context(), w.pod(pod), client.RawPatch(types.MergePatchType, []byte(body))))
}

// I11: a clock that is ten minutes off, and one that is stepped, end nothing early and keep nothing alive.
func TestI11ClocksThatAreOffChangeNoTimeout(t *testing.T) {
	w := newWorld(t)
	w.makePool(6)
	file := filepath.Join(t.TempDir(), "offset")
	step := func(by string) { w.must(os.WriteFile(file, []byte(by), 0o600)) }
	steppable := func(o *claim.Options, _ *rest.Config) {
		clock, err := offset.New("@" + file)
		w.must(err)
		o.Clock = clock
	}
	step("10m")
	l := w.lead(1, steppable)
	l.awaitIdle("p", 6)
	check := func(by string) {
		t.Helper()
		began := time.Now()
		short, long := l.mustCreate(idleTimeout(3*time.Second), firstActivity(0)), l.mustCreate(idleTimeout(5*time.Minute), maxLifetime(6*time.Minute))
		step(by)
		l.mustTouch(long.GetId())
		l.awaitEnd(short.GetId(), began, 3*time.Second, idle.IdleTimeout)
		l.wantRunning(long.GetId(), "its time was not up, after a step to "+by)
	}
	check("-10m")
	check("10m")
	l.stop()
	l.blind()
	step("-10m") // the next leader's clock
	began := time.Now()
	l = w.lead(2, steppable)
	check("10m")
	list, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Namespace: w.namespace, Phase: sandboxv1.Phase_RUNNING})
	w.must(err)
	if len(list.GetSandboxes()) != 3 {
		t.Errorf("%s after the next leader began %d sandboxes run, want those 3 whose time is not up", time.Since(began), len(list.GetSandboxes()))
	}
}

// I6: who does not lead for certain ends nothing, and a timeout that somebody changed elsewhere is heeded.
func TestI6OnlyALeaderEndsSandboxes(t *testing.T) {
	w := newWorld(t)
	w.makePool(3)
	earlier := w.lead(1)
	earlier.awaitIdle("p", 3)
	forgotten, changed := earlier.mustCreate(idleTimeout(3*time.Second)), earlier.mustCreate(idleTimeout(15*time.Second))
	earlier.mustCreate() // it looks at the latest one, whatever it hears of the others
	earlier.lease.lost.Store(true)
	if _, err := earlier.Touch(t.Context(), forgotten.GetId()); problem.FromError(err).Reason != problem.Unavailable {
		t.Errorf("touched where nobody leads: %v", err)
	}
	w.await(forgotten.GetStartedAt().AsTime().Add(6 * time.Second))
	if got := w.pod(forgotten.GetPod()).Labels[v1alpha1.SandboxPhaseLabelKey]; got != v1alpha1.SandboxPhaseRunning {
		t.Errorf("it was ended without a lease: it is %s", got)
	}
	earlier.blind() // it does not hear of what comes
	later := w.lead(2)
	_, err := later.Update(t.Context(), &sandboxv1.UpdateSandboxRequest{Id: changed.GetId(), IdleTimeout: durationpb.New(time.Hour)})
	w.must(err)
	later.awaitEnd(forgotten.GetId(), time.Now(), 0, idle.IdleTimeout)
	w.await(changed.GetStartedAt().AsTime().Add(17 * time.Second)) // which the earlier one still believes to be the end
	earlier.lease.lost.Store(false)
	w.await(time.Now().Add(3 * time.Second))
	later.wantRunning(changed.GetId(), "its timeout was changed")
}

// I6: a leader that was frozen, and has refused an attempt, does not end the sandbox that the next one gave it.
func TestI6ALapsedLeaderEndsNothingOfItsSuccessor(t *testing.T) {
	w := newWorld(t)
	w.makePool(2)
	earlier := w.lead(1)
	earlier.awaitIdle("p", 2)
	if _, err := earlier.Cancel(t.Context(), hashOf(w, "k"), 1); err != nil {
		t.Fatal(err)
	}
	earlier.lease.lost.Store(true)
	later := w.lead(2)
	later.awaitIdle("p", 2)
	got := later.mustCreate(keyed("k", 1))
	earlier.awaitIdle("p", 1) // it has seen it
	earlier.stop()            // which waits for what it does about it
	later.wantRunning(got.GetId(), "it was answered")
	if end := w.annotation(got.GetPod(), v1alpha1.SandboxStopReasonAnnotationKey); end != "" {
		t.Errorf("the Pod says that it ended: %s", end)
	}
}

// await waits for a time by which something must not have happened.
func (w *world) await(at time.Time) {
	w.t.Helper()
	w.eventually("its time", func() error {
		if left := time.Until(at); left > 0 {
			return fmt.Errorf("it is %s away", left)
		}
		return nil
	})
}
