// SPDX-License-Identifier: Apache-2.0

package sandboxes_test

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
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock/offset"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/idle"
)

// A leader that takes over uses what was written: late, and never early.
func TestTheNextLeaderTakesTimeoutsOver(t *testing.T) {
	t.Parallel()
	w, l := claimtest.Start(t, 5)
	began := time.Now()
	var (
		untouched = l.MustCreate(idleTimeout(6 * time.Second))
		touched   = l.MustCreate(idleTimeout(6 * time.Second))
		old       = l.MustCreate(maxLifetime(5 * time.Second))
		longIdle  = l.MustCreate(idleTimeout(40 * time.Second))
		unflushed = l.MustCreate(idleTimeout(25 * time.Second))
	)
	mustTouch(l, touched.GetId())
	mustTouch(l, unflushed.GetId())
	l.Stop()
	l.Blind()
	// As if all of that had been an hour ago, and the last touch of these a minute and 20 s.
	backdate(w, longIdle.GetPod(), time.Hour, time.Minute)
	backdate(w, unflushed.GetPod(), time.Hour, 20*time.Second)
	took := time.Now() // before it leads: leading takes longer than the timeouts allow for, on a busy machine
	next := w.Lead(2)
	wantRunning(next, unflushed.GetId(), "it may have been touched 30 s after what is written down")
	awaitEnd(next, old.GetId(), began, 5*time.Second, idle.MaxLifetime)
	awaitEnd(next, untouched.GetId(), began, 6*time.Second, idle.IdleTimeout)
	awaitEnd(next, touched.GetId(), took, 6*time.Second, idle.IdleTimeout)
	awaitEnd(next, longIdle.GetId(), took, 9*time.Second, idle.IdleTimeout) // 60 s - 30 s of its 40 s have passed, to a second
	wantRunning(next, unflushed.GetId(), "it may have been touched 30 s after what is written down")
}

// I6: a restored etcd has lost when sandboxes were active last.
func TestI6ARestoredEtcdEndsNoSandboxEarly(t *testing.T) {
	t.Parallel()
	w, l := claimtest.Start(t, 3)
	quiet, old, early := l.MustCreate(idleTimeout(3*time.Second)), l.MustCreate(maxLifetime(time.Minute)),
		l.MustCreate(idleTimeout(time.Minute))
	l.Stop()
	l.Blind()
	for _, s := range []*sandboxv1.Sandbox{quiet, old, early} {
		backdate(w, s.GetPod(), time.Hour, time.Hour)
	}
	next := w.Follow()
	next.DistrustActivity()
	began := time.Now()
	next.TakeOver(2)
	awaitEnd(next, old.GetId(), began, 0, idle.MaxLifetime)
	awaitEnd(next, quiet.GetId(), began, 3*time.Second, idle.IdleTimeout)
	next.DistrustActivity() // the hub may report it late
	wantRunning(next, early.GetId(), "it may have been active a moment ago")
}

// backdate writes times on a Pod as an earlier leader would have.
func backdate(w *claimtest.World, pod string, claimed, active time.Duration) {
	w.T.Helper()
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q,%q:%q}}}`, v1alpha1.SandboxClaimedAtAnnotationKey, ago(claimed),
		v1alpha1.SandboxStartedAtAnnotationKey, ago(claimed), v1alpha1.SandboxLastActiveAnnotationKey, ago(active))
	w.Must(w.Live.Patch(w.T.Context(), w.Pod(pod), client.RawPatch(types.MergePatchType, []byte(body))))
}

// I11: a clock that is ten minutes off, and one that is stepped, end nothing early and keep nothing alive.
func TestI11ClocksThatAreOffChangeNoTimeout(t *testing.T) {
	t.Parallel()
	w := claimtest.NewWorld(t)
	file := filepath.Join(t.TempDir(), "offset")
	step := func(by string) { w.Must(os.WriteFile(file, []byte(by), 0o600)) }
	steppable := func(o *claimtest.Options, _ *rest.Config) {
		clock, err := offset.New("@" + file)
		w.Must(err)
		o.Inventory.Clock = clock
	}
	step("10m")
	l := w.Start(6, steppable)
	check := func(by string) {
		t.Helper()
		began := time.Now()
		short, long := l.MustCreate(idleTimeout(3*time.Second), firstActivity(0)),
			l.MustCreate(idleTimeout(5*time.Minute), maxLifetime(6*time.Minute))
		step(by)
		mustTouch(l, long.GetId())
		awaitEnd(l, short.GetId(), began, 3*time.Second, idle.IdleTimeout)
		wantRunning(l, long.GetId(), "its time was not up, after a step to "+by)
	}
	check("-10m")
	check("10m")
	l.Stop()
	l.Blind()
	step("-10m") // the next leader's clock
	began := time.Now()
	l = w.Lead(2, steppable)
	check("10m")
	list, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Namespace: w.Namespace, Phase: sandboxv1.Phase_RUNNING})
	w.Must(err)
	if len(list.GetSandboxes()) != 3 {
		t.Errorf("%s after the next leader began %d sandboxes run, want those 3 whose time is not up", time.Since(began),
			len(list.GetSandboxes()))
	}
}

// I6: a process that does not certainly lead ends nothing, and a timeout that another process changed is respected.
func TestI6OnlyALeaderEndsSandboxes(t *testing.T) {
	t.Parallel()
	w, earlier := claimtest.Start(t, 3)
	changed, forgotten := earlier.MustCreate(idleTimeout(15*time.Second)), earlier.MustCreate(idleTimeout(3*time.Second))
	earlier.MustCreate() // it looks at the latest one, whatever events of the others arrive
	earlier.Lease.Lost.Store(true)
	if _, err := earlier.Touch(t.Context(), forgotten.GetId()); problem.FromError(err).Reason != problem.Unavailable {
		t.Errorf("touched where no worker leads: %v", err)
	}
	await(w, forgotten.GetStartedAt().AsTime().Add(6*time.Second))
	if got := w.Pod(forgotten.GetPod()).Labels[v1alpha1.SandboxPhaseLabelKey]; got != v1alpha1.SandboxPhaseRunning {
		t.Errorf("it was ended without a lease: it is %s", got)
	}
	earlier.Blind() // it gets no more events
	later := w.Lead(2)
	_, err := later.Sandboxes.Update(t.Context(), &sandboxv1.UpdateSandboxRequest{Id: changed.GetId(), IdleTimeout: durationpb.New(time.Hour)})
	w.Must(err)
	awaitEnd(later, forgotten.GetId(), time.Now(), 0, idle.IdleTimeout)
	await(w, changed.GetStartedAt().AsTime().Add(17*time.Second)) // which the earlier leader still takes for the end
	earlier.Lease.Lost.Store(false)
	await(w, time.Now().Add(3*time.Second))
	wantRunning(later, changed.GetId(), "its timeout was changed")
}

// I6: a leader that was frozen, and has refused an attempt, does not end the sandbox that the next leader created for it.
func TestI6ALapsedLeaderEndsNothingOfItsSuccessor(t *testing.T) {
	w, earlier := claimtest.Start(t, 2)
	_, err := earlier.Cancel(t.Context(), w.KeyHash("k"), 1)
	must.Succeed(t, err)
	earlier.Lease.Lost.Store(true)
	later := w.Lead(2)
	later.AwaitIdle(2)
	got := later.MustCreate(claimtest.Keyed("k", 1))
	earlier.AwaitIdle(1) // it has seen it
	earlier.Stop()       // which waits for what it does about it
	wantRunning(later, got.GetId(), "it was answered")
	if end := annotation(w, got.GetPod(), v1alpha1.SandboxStopReasonAnnotationKey); end != "" {
		t.Errorf("the Pod says that it ended: %s", end)
	}
}

// await waits for a time by which something must not have happened.
func await(w *claimtest.World, at time.Time) {
	w.T.Helper()
	w.Eventually("its time", func() error {
		left := time.Until(at)
		return wait.If(left <= 0, left)
	})
}
