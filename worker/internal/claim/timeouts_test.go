// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/worker/internal/claim"
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

// awaitEnd waits for the end of a sandbox, which is not to come before a time has passed, and answers what it says.
func (l *leader) awaitEnd(id string, since time.Time, least time.Duration, reason idle.Reason) *sandboxv1.Sandbox {
	l.w.t.Helper()
	var record *sandboxv1.Sandbox
	l.w.eventually("the end of "+id, func() error {
		got, err := l.Get(l.w.t.Context(), id)
		if err != nil {
			l.w.t.Fatal(err)
		}
		if record = got; got.GetPhase() == sandboxv1.Phase_RUNNING {
			return errors.New("it runs")
		}
		return nil
	})
	took := time.Since(since)
	if took < least || took > least+lateness {
		l.w.t.Errorf("%s ended after %s, want %s", reason, took, least)
	}
	if record.GetStopReason() != "Released" || record.GetFailureReason() != string(reason) || record.GetFailureMessage() == "" {
		l.w.t.Errorf("it ended as %s/%s: %q, want Released/%s", record.GetStopReason(), record.GetFailureReason(), record.GetFailureMessage(), reason)
	}
	return record
}

func (l *leader) wantRunning(id, why string) {
	l.w.t.Helper()
	if got, err := l.Get(l.w.t.Context(), id); err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING {
		l.w.t.Errorf("%s: %v, %v", why, got, err)
	}
}

func (l *leader) mustTouch(id string) *sandboxv1.Sandbox {
	l.w.t.Helper()
	got, err := l.Touch(l.w.t.Context(), id)
	l.w.must(err)
	return got
}

func (w *world) annotation(pod, key string) string {
	w.t.Helper()
	return w.pod(pod).Annotations[key]
}

func TestTimeoutsEndSandboxes(t *testing.T) {
	w := newWorld(t)
	w.makePool(6, func(p *v1alpha1.SandboxPool) { p.Spec.DefaultIdleTimeout = &metav1.Duration{Duration: 4 * time.Second} })
	l := w.lead(1)
	l.awaitIdle("p", 6)
	began := time.Now()
	pools := l.mustCreate(keyed("k", 1))
	own := l.mustCreate(idleTimeout(time.Hour), maxLifetime(3*time.Second))
	unused := l.mustCreate(idleTimeout(0), firstActivity(2*time.Second), image(tenantImage))
	used := l.mustCreate(idleTimeout(0), firstActivity(2*time.Second))
	endless := l.mustCreate(idleTimeout(0), firstActivity(0))
	defaults := l.mustCreate(idleTimeout(0))
	if pools.GetIdleTimeout().AsDuration() != 4*time.Second || pools.GetFirstActivityTimeout() != nil {
		t.Errorf("with a key and nothing else: %v", pools)
	}
	if own.GetIdleTimeout().AsDuration() != time.Hour || own.GetMaxLifetime().AsDuration() != 3*time.Second {
		t.Errorf("with its own timeouts: %v", own)
	}
	if defaults.GetIdleTimeout() != nil || defaults.GetFirstActivityTimeout().AsDuration() != 5*time.Minute || defaults.GetLastActiveAt() != nil {
		t.Errorf("without a key and timeouts: %v", defaults)
	}
	if got := l.mustTouch(used.GetId()); got.GetLastActiveAt() == nil {
		t.Errorf("touched: %v", got)
	}
	if _, err := time.Parse(time.RFC3339, w.annotation(used.GetPod(), v1alpha1.SandboxLastActiveAnnotationKey)); err != nil {
		t.Errorf("a touch was answered before it was written down: %v", err)
	}
	started := unused.GetStartedAt().AsTime()
	l.awaitEnd(unused.GetId(), started, 2*time.Second, idle.FirstActivityTimeout)
	l.awaitEnd(own.GetId(), began, 3*time.Second, idle.MaxLifetime)
	l.awaitEnd(pools.GetId(), began, 4*time.Second, idle.IdleTimeout)
	for why, s := range map[string]*sandboxv1.Sandbox{"touched in time": used, "without timeouts": endless, "in its first minutes": defaults} {
		l.wantRunning(s.GetId(), why)
	}
	w.eventually("the record for the hub", func() error {
		_, records := l.TakeEnded(10)
		if len(records) != 1 || records[0].GetSandbox().GetFailureReason() != "IdleTimeout" || records[0].GetSandbox().GetStopReason() != "Released" {
			return fmt.Errorf("there are %v", records)
		}
		return nil
	})
	if got, err := l.Touch(t.Context(), pools.GetId()); err != nil || got.GetStopReason() != "Released" {
		t.Errorf("an ended sandbox is touched: %v, %v", got, err)
	}
	if got, err := l.Update(t.Context(), &sandboxv1.UpdateSandboxRequest{Id: pools.GetId(), IdleTimeout: durationpb.New(time.Hour)}); err != nil ||
		got.GetStopReason() != "Released" {
		t.Errorf("an ended sandbox is changed: %v, %v", got, err)
	}
	if got := l.endings("Released", "IdleTimeout"); got != 1 {
		t.Errorf("%v endings are counted as idle", got)
	}
}

// endings counts sandboxes that have ended.
func (l *leader) endings(reason, cause string) float64 {
	l.w.t.Helper()
	families, err := l.metrics.Gather()
	l.w.must(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := m.GetLabel()
			if family.GetName() == "atoll_worker_claim_ended_sandboxes_total" && labels[0].GetValue() == cause && labels[1].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestTimeoutsOfALiveSandboxChange(t *testing.T) {
	w := newWorld(t)
	w.makePool(3)
	l := w.lead(1)
	l.awaitIdle("p", 3)
	update := func(id string, r *sandboxv1.UpdateSandboxRequest) *sandboxv1.Sandbox {
		t.Helper()
		r.Id = id
		got, err := l.Update(t.Context(), r)
		w.must(err)
		return got
	}
	longer, shorter, told := l.mustCreate(idleTimeout(3*time.Second)), l.mustCreate(idleTimeout(time.Hour)), l.mustCreate(firstActivity(3*time.Second))
	began := time.Now()
	if got := update(longer.GetId(), &sandboxv1.UpdateSandboxRequest{IdleTimeout: durationpb.New(0), MaxLifetime: durationpb.New(time.Hour)}); got.GetIdleTimeout() != nil ||
		got.GetMaxLifetime().AsDuration() != time.Hour {
		t.Errorf("changed to %v", got)
	}
	if got := update(shorter.GetId(), &sandboxv1.UpdateSandboxRequest{IdleTimeout: durationpb.New(4500 * time.Millisecond)}); got.GetIdleTimeout().AsDuration() != 5*time.Second {
		t.Errorf("changed to %v, want whole seconds, rounded up", got)
	}
	if got := update(told.GetId(), &sandboxv1.UpdateSandboxRequest{MaxLifetime: durationpb.New(time.Hour)}); got.GetFirstActivityTimeout() != nil {
		t.Errorf("changed to %v: whoever changes it has been told of it", got)
	}
	l.awaitEnd(shorter.GetId(), began, 4*time.Second, idle.IdleTimeout) // it ran a moment before
	l.wantRunning(longer.GetId(), "its idle timeout was taken off")
	l.wantRunning(told.GetId(), "somebody knows of it")
	update(longer.GetId(), &sandboxv1.UpdateSandboxRequest{MaxLifetime: durationpb.New(time.Second)})
	l.awaitEnd(longer.GetId(), began, time.Second, idle.MaxLifetime)

	for field, r := range map[string]*sandboxv1.UpdateSandboxRequest{
		"idleTimeout":  {IdleTimeout: durationpb.New(-1)},
		"maxLifetime":  {MaxLifetime: durationpb.New(validate.MaxTimeout + 1)},
		"idleTimeout ": {},
	} {
		r.Id = told.GetId()
		_, err := l.Update(t.Context(), r)
		if p := problem.FromError(err); p.Reason != problem.Invalid || len(p.Fields) != 1 || p.Fields[0].Field != strings.TrimSpace(field) || p.Fields[0].Valid == "" {
			t.Errorf("%v: %v", r, err)
		}
	}
	_, err := l.Touch(t.Context(), "01hzzzzzzzzzzzzzzzzzzz0001-east")
	if problem.FromError(err).Reason != problem.NotFound {
		t.Errorf("a sandbox that never was is touched: %v", err)
	}
}

func TestTimeoutsOutOfBoundsAreRefused(t *testing.T) {
	w := newWorld(t)
	w.makePool(0)
	l := w.lead(1)
	for field, change := range map[string]func(*claim.Claim){
		"idleTimeout":           idleTimeout(-time.Second),
		"maxLifetime":           maxLifetime(validate.MaxTimeout + time.Second),
		"firstActivityTimeout":  func(c *claim.Claim) { c.Request.FirstActivityTimeout = &durationpb.Duration{Seconds: 1 << 60} },
		"firstActivityTimeout ": func(c *claim.Claim) { firstActivity(time.Minute)(c); keyed("k", 1)(c) },
	} {
		_, err := l.create(change)
		if p := problem.FromError(err); p.Reason != problem.Invalid || len(p.Fields) != 1 || p.Fields[0].Field != strings.TrimSpace(field) ||
			p.Fields[0].Valid == "" || p.Fields[0].Value == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// source is activity that is known elsewhere.
type source struct{ unreachable atomic.Bool }

func (s *source) GetLastActive(context.Context) (map[string]time.Time, error) {
	if s.unreachable.Load() {
		return nil, errors.New("unreachable")
	}
	return nil, nil
}

// I6: while it cannot be known whether a sandbox is used, it is not ended for want of use.
func TestI6NothingEndsAsIdleWhileASourceIsUnreachable(t *testing.T) {
	w := newWorld(t)
	w.makePool(3)
	s := &source{}
	s.unreachable.Store(true)
	l := w.lead(1, func(o *claim.Options, _ *rest.Config) { o.Activity = []idle.LastActiveSource{s} })
	l.awaitIdle("p", 3)
	began := time.Now()
	quiet, unused, old := l.mustCreate(idleTimeout(time.Second)), l.mustCreate(firstActivity(time.Second)), l.mustCreate(idleTimeout(time.Second), maxLifetime(5*time.Second))
	l.awaitEnd(old.GetId(), began, 5*time.Second, idle.MaxLifetime)
	l.wantRunning(quiet.GetId(), "a source of activity is unreachable")
	l.wantRunning(unused.GetId(), "a source of activity is unreachable")
	back := time.Now()
	s.unreachable.Store(false)
	l.awaitEnd(quiet.GetId(), back, 0, idle.IdleTimeout)
	l.awaitEnd(unused.GetId(), back, 0, idle.FirstActivityTimeout)
}

// A sandbox that is never seen running ends as failed, and its caller hears why.
func TestAStartThatTakesTooLongFails(t *testing.T) {
	w := newWorld(t)
	w.makePool(1)
	l := w.lead(1)
	l.awaitIdle("p", 1)
	slow := w.pods()[0]
	// Half of what a swap takes here.
	_, err := l.create(image(tenantImage), func(c *claim.Claim) { c.Request.StartupTimeout = durationpb.New(100 * time.Millisecond) })
	if p := problem.FromError(err); p.Reason != problem.Deadline || !strings.Contains(p.Message, "Failed: StartupTimeout") {
		t.Errorf("got %v, want DEADLINE and that it failed by the startup timeout", err)
	}
	w.eventually("the end to be counted", func() error {
		if l.endings("Failed", "StartupTimeout") != 1 {
			return errors.New("it is not")
		}
		return nil
	})
	// The old Pod is still there for a moment after the new one has come.
	w.eventually("another Pod in its place", func() error {
		if pods := w.pods(); len(pods) != 1 || pods[0].UID == slow.UID {
			return fmt.Errorf("there are %d, and %s must go", len(pods), slow.UID)
		}
		return nil
	})
	l.awaitIdle("p", 1)
}
