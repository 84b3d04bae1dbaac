// SPDX-License-Identifier: Apache-2.0

package sandboxes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/idle"
)

// lateness is how late an end may be, and what a busy machine adds.
const lateness = 5*time.Second + 5*time.Second

func idleTimeout(d time.Duration) func(*claim.Claim) {
	return func(c *claim.Claim) { c.Request.IdleTimeout = durationpb.New(d) }
}

func maxLifetime(d time.Duration) func(*claim.Claim) {
	return func(c *claim.Claim) { c.Request.MaxLifetime = durationpb.New(d) }
}

func firstActivity(d time.Duration) func(*claim.Claim) {
	return func(c *claim.Claim) { c.Request.FirstActivityTimeout = durationpb.New(d) }
}

// awaitEnd waits for the end of a sandbox, which must not come before a time has passed, and returns its record.
func awaitEnd(l *claimtest.Worker, id string, since time.Time, least time.Duration, reason idle.Reason) *sandboxv1.Sandbox {
	l.W.T.Helper()
	var record *sandboxv1.Sandbox
	l.Until(id, "its end", func(got *sandboxv1.Sandbox) bool {
		record = got
		return got.GetPhase() != sandboxv1.Phase_RUNNING
	})
	took := time.Since(since)
	if took < least || took > least+lateness {
		l.W.T.Errorf("%s ended after %s, want %s", reason, took, least)
	}
	if record.GetStopReason() != "Released" || record.GetFailureReason() != string(reason) || record.GetFailureMessage() == "" {
		l.W.T.Errorf("it ended as %s/%s: %q, want Released/%s", record.GetStopReason(), record.GetFailureReason(), record.GetFailureMessage(),
			reason)
	}
	return record
}

func wantRunning(l *claimtest.Worker, id, why string) {
	l.W.T.Helper()
	if got, err := l.Get(l.W.T.Context(), id); err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING {
		l.W.T.Errorf("%s: %v, %v", why, got, err)
	}
}

func mustTouch(l *claimtest.Worker, id string) *sandboxv1.Sandbox {
	l.W.T.Helper()
	got, err := l.Touch(l.W.T.Context(), id)
	l.W.Must(err)
	return got
}

func annotation(w *claimtest.World, pod, key string) string {
	w.T.Helper()
	return w.Pod(pod).Annotations[key]
}

func TestTimeoutsEndSandboxes(t *testing.T) {
	t.Parallel()
	w, l := claimtest.Start(t, 6, func(p *v1alpha1.SandboxPool) {
		p.Spec.DefaultIdleTimeout = &metav1.Duration{Duration: 4 * time.Second}
	})
	began := time.Now()
	pools := l.MustCreate(claimtest.Keyed("k", 1))
	own := l.MustCreate(idleTimeout(time.Hour), maxLifetime(3*time.Second))
	unused := l.MustCreate(idleTimeout(0), firstActivity(2*time.Second), claimtest.Image(claimtest.TenantImage))
	used := l.MustCreate(idleTimeout(0), firstActivity(2*time.Second))
	// At once, because its time may be up when a busy machine has created the others.
	if got := mustTouch(l, used.GetId()); got.GetLastActiveAt() == nil {
		t.Errorf("touched: %v", got)
	}
	if _, err := time.Parse(time.RFC3339, annotation(w, used.GetPod(), v1alpha1.SandboxLastActiveAnnotationKey)); err != nil {
		t.Errorf("a touch was answered before it was written down: %v", err)
	}
	endless := l.MustCreate(idleTimeout(0), firstActivity(0))
	defaults := l.MustCreate(idleTimeout(0))
	if pools.GetIdleTimeout().AsDuration() != 4*time.Second || pools.GetFirstActivityTimeout() != nil {
		t.Errorf("with a key and nothing else: %v", pools)
	}
	if own.GetIdleTimeout().AsDuration() != time.Hour || own.GetMaxLifetime().AsDuration() != 3*time.Second {
		t.Errorf("with its own timeouts: %v", own)
	}
	if defaults.GetIdleTimeout() != nil || defaults.GetFirstActivityTimeout().AsDuration() != 5*time.Minute ||
		defaults.GetLastActiveAt() != nil {
		t.Errorf("without a key and timeouts: %v", defaults)
	}
	started := unused.GetStartedAt().AsTime()
	awaitEnd(l, unused.GetId(), started, 2*time.Second, idle.FirstActivityTimeout)
	awaitEnd(l, own.GetId(), began, 3*time.Second, idle.MaxLifetime)
	awaitEnd(l, pools.GetId(), began, 4*time.Second, idle.IdleTimeout)
	for why, s := range map[string]*sandboxv1.Sandbox{"touched in time": used, "without timeouts": endless, "in its first minutes": defaults} {
		wantRunning(l, s.GetId(), why)
	}
	w.Eventually("the record for the hub", func() error {
		_, records := l.TakeEnded(10)
		return wait.If(len(records) == 1 && records[0].GetSandbox().GetFailureReason() == "IdleTimeout" &&
			records[0].GetSandbox().GetStopReason() == "Released", records)
	})
	if got, err := l.Touch(t.Context(), pools.GetId()); err != nil || got.GetStopReason() != "Released" {
		t.Errorf("an ended sandbox is touched: %v, %v", got, err)
	}
	if got, err := l.Sandboxes.Update(t.Context(), &sandboxv1.UpdateSandboxRequest{Id: pools.GetId(),
		IdleTimeout: durationpb.New(time.Hour)}); err != nil ||
		got.GetStopReason() != "Released" {
		t.Errorf("an ended sandbox is changed: %v, %v", got, err)
	}
	w.Eventually("the metric, which is counted after the record is kept", func() error {
		got := endings(l, "Released", "IdleTimeout")
		return wait.If(got == 1, got)
	})
}

// endings counts sandboxes that have ended.
func endings(l *claimtest.Worker, reason, cause string) float64 {
	return l.Metric("atoll_worker_claim_ended_sandboxes_total", prometheus.Labels{"reason": reason, "cause": cause})
}

func TestTimeoutsOfALiveSandboxChange(t *testing.T) {
	t.Parallel()
	w, l := claimtest.Start(t, 3)
	update := func(id string, r *sandboxv1.UpdateSandboxRequest) *sandboxv1.Sandbox {
		t.Helper()
		r.Id = id
		got, err := l.Sandboxes.Update(t.Context(), r)
		w.Must(err)
		return got
	}
	// Each is changed at once, because its time may be up when a busy machine has created the others.
	longer := l.MustCreate(idleTimeout(3 * time.Second))
	if got := update(longer.GetId(), &sandboxv1.UpdateSandboxRequest{IdleTimeout: durationpb.New(0),
		MaxLifetime: durationpb.New(time.Hour)}); got.GetIdleTimeout() != nil ||
		got.GetMaxLifetime().AsDuration() != time.Hour {
		t.Errorf("changed to %v", got)
	}
	told := l.MustCreate(firstActivity(3 * time.Second))
	got := update(told.GetId(), &sandboxv1.UpdateSandboxRequest{MaxLifetime: durationpb.New(time.Hour)})
	if got.GetFirstActivityTimeout() != nil {
		t.Errorf("changed to %v: a caller that changes it has been given it", got)
	}
	began := time.Now()
	shorter := l.MustCreate(idleTimeout(time.Hour))
	got = update(shorter.GetId(), &sandboxv1.UpdateSandboxRequest{IdleTimeout: durationpb.New(4500 * time.Millisecond)})
	if got.GetIdleTimeout().AsDuration() != 5*time.Second {
		t.Errorf("changed to %v, want whole seconds, rounded up", got)
	}
	awaitEnd(l, shorter.GetId(), began, 5*time.Second, idle.IdleTimeout)
	wantRunning(l, longer.GetId(), "its idle timeout was taken off")
	wantRunning(l, told.GetId(), "a caller knows of it")
	changed := time.Now()
	update(longer.GetId(), &sandboxv1.UpdateSandboxRequest{MaxLifetime: durationpb.New(time.Second)})
	awaitEnd(l, longer.GetId(), changed, 0, idle.MaxLifetime) // it has run for longer

	for field, r := range map[string]*sandboxv1.UpdateSandboxRequest{
		"idleTimeout":  {IdleTimeout: durationpb.New(-1)},
		"maxLifetime":  {MaxLifetime: durationpb.New(validate.MaxTimeout + 1)},
		"idleTimeout ": {},
	} {
		r.Id = told.GetId()
		_, err := l.Sandboxes.Update(t.Context(), r)
		if p := problem.FromError(err); p.Reason != problem.Invalid || len(p.Fields) != 1 || p.Fields[0].Field != strings.TrimSpace(field) ||
			p.Fields[0].Valid == "" {
			t.Errorf("%v: %v", r, err)
		}
	}
	_, err := l.Touch(t.Context(), "01hzzzzzzzzzzzzzzzzzzz0001-east")
	if problem.FromError(err).Reason != problem.NotFound {
		t.Errorf("a sandbox that never was is touched: %v", err)
	}
}

func TestTimeoutsOutOfBoundsAreRefused(t *testing.T) {
	_, l := claimtest.Start(t, 0)
	for field, change := range map[string]func(*claim.Claim){
		"idleTimeout":           idleTimeout(-time.Second),
		"maxLifetime":           maxLifetime(validate.MaxTimeout + time.Second),
		"firstActivityTimeout":  func(c *claim.Claim) { c.Request.FirstActivityTimeout = &durationpb.Duration{Seconds: 1 << 60} },
		"firstActivityTimeout ": func(c *claim.Claim) { firstActivity(time.Minute)(c); claimtest.Keyed("k", 1)(c) },
	} {
		_, err := l.TryCreate(change)
		if p := problem.FromError(err); p.Reason != problem.Invalid || len(p.Fields) != 1 || p.Fields[0].Field != strings.TrimSpace(field) ||
			p.Fields[0].Valid == "" || p.Fields[0].Value == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// source is activity that another component reports.
type source struct{ unreachable atomic.Bool }

func (s *source) GetLastActive(context.Context) (map[string]time.Time, error) {
	if s.unreachable.Load() {
		return nil, errors.New("unreachable")
	}
	return nil, nil
}

// I6: while it is unknown whether a sandbox is used, it does not end for lack of use.
func TestI6NothingEndsAsIdleWhileASourceIsUnreachable(t *testing.T) {
	t.Parallel()
	s := &source{}
	s.unreachable.Store(true)
	l := claimtest.NewWorld(t).Start(3, func(o *claimtest.Options, _ *rest.Config) {
		o.Sandboxes.Activity = []idle.LastActiveSource{s}
	})
	began := time.Now()
	quiet, unused, old := l.MustCreate(idleTimeout(time.Second)), l.MustCreate(firstActivity(time.Second)),
		l.MustCreate(idleTimeout(time.Second), maxLifetime(5*time.Second))
	awaitEnd(l, old.GetId(), began, 5*time.Second, idle.MaxLifetime)
	wantRunning(l, quiet.GetId(), "a source of activity is unreachable")
	wantRunning(l, unused.GetId(), "a source of activity is unreachable")
	back := time.Now()
	s.unreachable.Store(false)
	awaitEnd(l, quiet.GetId(), back, 0, idle.IdleTimeout)
	awaitEnd(l, unused.GetId(), back, 0, idle.FirstActivityTimeout)
}

// A sandbox that is never seen running ends as failed, and its caller gets the reason.
func TestAStartThatTakesTooLongFails(t *testing.T) {
	t.Parallel()
	w := claimtest.NewWorld(t, stuck{})
	l := w.Start(1)
	slow := w.Pods()[0]
	// Its hooks are never done, so that it does not run in time, however late a busy machine looks.
	_, err := l.TryCreate(claimtest.Image(claimtest.TenantImage), withHook, startsWithin2s)
	if p := problem.FromError(err); p.Reason != problem.Deadline || !strings.Contains(p.Message, "Failed: StartupTimeout") {
		t.Errorf("got %v, want DEADLINE and that it failed by the startup timeout", err)
	}
	w.Eventually("the end to be counted", func() error { return wait.If(endings(l, "Failed", "StartupTimeout") == 1, "it is not") })
	// The old Pod still exists for a moment after the new one was created.
	w.Eventually("another Pod in its place", func() error {
		pods := w.Pods()
		return wait.If(len(pods) == 1 && pods[0].UID != slow.UID, fmt.Sprintf("there are %d, and %s must go", len(pods), slow.UID))
	})
	l.AwaitIdle(1)
}
