// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	member = `{name: a, spec: {replicas: 1}, config: {priority: 1}}`
	// quick is a group whose times are short.
	quick = `{name: default, enabled: true, maxReplicas: 8, scaleUpPolicy: {mode: Aggressive, cooldownSeconds: 1, idleThresholdSeconds: 0, ` +
		`saturationCooldownSeconds: 2},
  scaleDownPolicy: {idleTimeoutSeconds: 2, stabilizationSeconds: 1, protectionWindowSeconds: 1}}`
)

// A burst at a small pool makes it grow, and every claim is served; afterwards it shrinks to its floor.
func TestGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env(quick, `{name: a, spec: {replicas: 1}, config: {minReplicas: 1}}`)
	w.idle("a", 1)
	w.awaitActive(metav1.ConditionTrue, v1alpha1.ReasonAutoscalerRunning)
	w.burst("a", 5)
	if got := w.replicas("a"); got < 5 || got > 8 {
		t.Errorf("%d replicas for 5 sandboxes, want between them and the ceiling", got)
	}
	status := w.Pool("a").Status.AutoScaling
	if status == nil || status.LastScaleUpTime == nil || status.LastScaleUpAttemptResult != v1alpha1.PoolScaleUpAttemptEnough {
		t.Errorf("status %+v", status)
	}
	w.awaitPool("a", "the time of the last create", func(p *v1alpha1.SandboxPool) error {
		at, err := time.Parse(time.RFC3339, p.Annotations[v1alpha1.LastSandboxCreateTimeAnnotationKey])
		if err == nil && time.Since(at) > time.Minute {
			return fmt.Errorf("it is %s", at)
		}
		return err
	})
	for _, pod := range w.Pods("a") {
		if id := sandbox.Read(&pod).ID; id != "" {
			_, err := w.claims.Release(t.Context(), id)
			w.Must(err)
		}
	}
	w.await("a", 1)
	if status := w.Pool("a").Status.AutoScaling; status.LastScaleDownTime == nil {
		t.Errorf("status %+v", status)
	}
}

// A running sandbox is not ended by a scale-down, and a marked Pod that is claimed is kept: replicas are not lowered for
// it, and nothing is deleted in its place (I6).
func TestAMarkedPodThatIsClaimedIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const member, idle = `{name: a, spec: {replicas: 3}, config: {priority: 1}}`, 2
	groups := func(timeout int) string {
		return fmt.Sprintf(`{name: default, enabled: true, scaleUpPolicy: {idleThresholdSeconds: 0},
  scaleDownPolicy: {idleTimeoutSeconds: %d, stabilizationSeconds: 0, protectionWindowSeconds: 30}}`, timeout)
	}
	// All are idle for long enough before one may be marked; because others would be marked after the window of the first.
	w.env(groups(3600), member)
	w.idle("a", 3)
	w.stays("replicas", (idle+1)*time.Second, func() error { return wait.If(w.replicas("a") == 3, "they have changed") })
	w.apply(w.manifest(groups(idle), member))
	w.Eventually("marks", func() error {
		for _, pod := range w.Pods("a") {
			if sandbox.MarkedAt(&pod) == "" {
				return fmt.Errorf("%s is not marked", pod.Name)
			}
		}
		return nil
	})
	if got := w.replicas("a"); got != 3 {
		t.Errorf("%d replicas while the window is open", got)
	}
	got, err := w.claim("a", "ann")
	w.Must(err)
	w.await("a", 1)
	pod := w.Pods("a")[0]
	if sandbox.Read(&pod).ID != got.GetId() || sandbox.MarkedAt(&pod) != "" {
		t.Errorf("what is left runs %q, marked %q", sandbox.Read(&pod).ID, sandbox.MarkedAt(&pod))
	}
}

// The admitted number is found, the member is saturated, and admission is not asked again until that is over.
func TestPartialAdmissionSaturates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.most.Store(3)
	w.env(`{name: default, enabled: true, maxReplicas: 16, scaleUpPolicy: {mode: Aggressive, cooldownSeconds: 0, idleThresholdSeconds: 0, `+
		`saturationCooldownSeconds: 3600}}`,
		`{name: a, spec: {replicas: 2}, config: {priority: 1}}`)
	w.idle("a", 2)
	w.burst("a", 2)
	go func() { _, _ = w.claim("a", "third") }()
	go func() { _, _ = w.claim("a", "fourth") }()
	w.awaitPool("a", "an attempt that got a part", func(p *v1alpha1.SandboxPool) error {
		s := p.Status.AutoScaling
		return wait.If(p.Spec.Replicas == 3 && s != nil && s.LastScaleUpAttemptResult == v1alpha1.PoolScaleUpAttemptInsufficient &&
			s.ScaleUpErrorMessage == "QuotaExceeded: no more than 3" && s.LastScaleUpTime != nil,
			fmt.Sprintf("%d replicas, %+v", p.Spec.Replicas, s))
	})
	awaitSaturation := func() {
		t.Helper()
		w.Eventually("the outlook", func() error {
			grow, left := w.scaler.Outlook(w.Key("a"))
			return wait.If(!grow && left >= 50*time.Minute, fmt.Sprintf("can grow: %v, saturated for %s", grow, left))
		})
	}
	awaitSaturation()
	asked := w.asked.Load()
	w.stays("admission is left alone", 2*time.Second, func() error {
		n := w.asked.Load()
		return wait.If(n == asked, n-asked)
	})
	// A restart loses none of it.
	w.stop()
	w.start()
	awaitSaturation()
	if n := w.asked.Load(); n != asked {
		t.Errorf("asked %d times more after a restart", n-asked)
	}
}

// Pods that the API server refuses saturate the member.
func TestRefusedPodsSaturate(t *testing.T) {
	w := newWorld(t)
	w.env(quick, member)
	w.idle("a", 1)
	w.Eventually("an outlook", func() error {
		grow, _ := w.scaler.Outlook(w.Key("a"))
		return wait.If(grow, "it cannot grow")
	})
	w.refused.Store(true)
	w.burst("a", 1) // something happens
	w.awaitPool("a", "the refusal", func(p *v1alpha1.SandboxPool) error {
		s := p.Status.AutoScaling
		return wait.If(s != nil && s.LastScaleUpAttemptResult == v1alpha1.PoolScaleUpAttemptInsufficient &&
			s.ScaleUpErrorMessage == "exceeded quota", s)
	})
}

// The first value of another writer is undone; one that comes back stands, until the user changes his config.
func TestContestedReplicasAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env(quick, `{name: a, spec: {replicas: 2}, config: {minReplicas: 2}}`)
	w.await("a", 2)
	w.awaitActive(metav1.ConditionTrue, v1alpha1.ReasonAutoscalerRunning)
	w.setReplicas(4)
	w.await("a", 2)
	w.setReplicas(4)
	w.awaitActive(metav1.ConditionFalse, v1alpha1.ReasonReplicasContested)
	w.await("a", 4)
	w.stays("it is left alone", 5*time.Second, func() error {
		got := w.replicas("a")
		return wait.If(got == 4, got)
	})
	w.apply(w.manifest(quick, `{name: a, config: {minReplicas: 1}}`))
	w.awaitActive(metav1.ConditionTrue, v1alpha1.ReasonAutoscalerRunning)
	w.await("a", 1)
}

// I3: a user who applies a manifest again, snapshots and all gone, loses no replicas.
func TestReapplyKeepsReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	groups := `{name: default, enabled: true, scaleUpPolicy: {cooldownSeconds: 0}}`
	w.apply(template)
	w.create(w.manifest(groups, member))
	w.idle("a", 1)
	w.burst("a", 4)
	grown := w.replicas("a")
	if grown < 4 {
		t.Fatalf("%d replicas for 4 sandboxes", grown)
	}
	for range 3 {
		// Replaced as a whole, as a client-side apply does it.
		w.replace(w.manifest(groups, member))
		w.Eventually("the replicas", func() error {
			got := w.replicas("a")
			return wait.If(got == grown && len(w.Env("e").Status.Snapshots) > 0, fmt.Sprintf("%d, want %d and the snapshot", got, grown))
		})
	}
	if got := len(w.Pods("a")); int32(got) < grown {
		t.Errorf("%d Pods, were %d", got, grown)
	}
	w.awaitActive(metav1.ConditionTrue, v1alpha1.ReasonAutoscalerRunning)
}

// Off: nothing is decided and nothing is remembered.
func TestDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env(quick, member)
	w.idle("a", 1)
	w.awaitPool("a", "a status", func(p *v1alpha1.SandboxPool) error {
		return wait.If(p.Status.AutoScaling != nil, "none")
	})
	w.apply(w.manifest(`{name: default, enabled: false}`, member))
	w.awaitPool("a", "no status", func(p *v1alpha1.SandboxPool) error {
		return wait.If(p.Status.AutoScaling == nil, p.Status.AutoScaling)
	})
	w.awaitActive(metav1.ConditionFalse, v1alpha1.ReasonAutoscalingDisabled)
	w.burst("a", 1)
	w.stays("its replicas are the user's", 3*time.Second, func() error {
		got := w.replicas("a")
		return wait.If(got == 1, got)
	})
	if grow, saturated := w.scaler.Outlook(w.Key("a")); grow || saturated > 0 {
		t.Errorf("can grow: %v, saturated for %s", grow, saturated)
	}
}

// Pools that another controller keeps are left alone, and scaled once it is gone.
func TestWhatAnotherControllerKeepsIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kept.Store(true)
	w.env(`{name: default, enabled: true, minReplicas: 2, scaleUpPolicy: {idleThresholdSeconds: 0}}`, member)
	w.idle("a", 1)
	w.stays("a pool that another controller keeps", 2*time.Second, func() error {
		got := w.replicas("a")
		return wait.If(got == 1, got)
	})
	w.kept.Store(false)
	w.await("a", 2)
}

// A pool without Pods grows for the first claim that waits; if it is refused for longer than a claim has, no claim waits.
func TestFromNothing(t *testing.T) {
	w := newWorld(t)
	w.env(`{name: default, enabled: true, scaleUpPolicy: {idleThresholdSeconds: 0, saturationCooldownSeconds: 3600}}`,
		`{name: a, spec: {replicas: 0}, config: {priority: 1}}, {name: b, spec: {replicas: 0}, config: {priority: 1}}`)
	w.Eventually("an outlook", func() error {
		for _, name := range []string{"a", "b"} {
			if grow, _ := w.scaler.Outlook(w.Key(name)); !grow {
				return fmt.Errorf("%s cannot grow", name)
			}
		}
		return nil
	})
	w.burst("a", 1)
	if got := w.replicas("a"); got != 1 {
		t.Errorf("%d replicas", got)
	}
	w.nothing.Store(true)
	go func() { _, _ = w.claim("b", "first") }()
	w.Eventually("the saturation", func() error {
		_, left := w.scaler.Outlook(w.Key("b"))
		return wait.If(left >= 50*time.Minute, left)
	})
	begin := time.Now()
	if _, err := w.claim("b", "second"); err == nil || time.Since(begin) > 5*time.Second {
		t.Errorf("a claim at a pool that has nothing and gets nothing: %v after %s", err, time.Since(begin))
	}
}

// At rest nothing is written, at any number of reconciles.
func TestNothingIsWrittenAtRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env(quick, `{name: a, spec: {replicas: 2}, config: {minReplicas: 2}}`)
	w.idle("a", 2)
	w.burst("a", 2)
	versions := func() (all string) {
		all = w.Env("e").ResourceVersion + " " + w.Pool("a").ResourceVersion
		for _, pod := range w.Pods("a") {
			all += " " + pod.ResourceVersion
		}
		return all
	}
	last, since := versions(), time.Now()
	w.Eventually("rest", func() error {
		if now := versions(); now != last {
			last, since = now, time.Now()
		}
		ago := time.Since(since)
		return wait.If(ago >= 7*time.Second, ago)
	})
	w.stays("rest", 13*time.Second, func() error {
		now := versions()
		return wait.If(now == last, fmt.Sprintf("%s became %s", last, now))
	})
}

// Replicas were lowered for marked Pods that were claimed at the last moment: they are raised again, and no other Pod is
// deleted in their place.
func TestReplicasAreRaisedAgainForPodsClaimedLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env(`{name: default, enabled: true, scaleUpPolicy: {idleThresholdSeconds: 0}, scaleDownPolicy: {protectionWindowSeconds: 0}}`,
		`{name: a, spec: {replicas: 3}, config: {priority: 1}}`)
	w.idle("a", 3)
	before := map[string]bool{}
	for _, pod := range w.Pods("a") {
		before[string(pod.UID)] = true
	}
	w.setReplicasAs(controllers.FieldManager, 1) // what the autoscaler's own write leaves when the marks are gone
	w.await("a", 3)
	w.Eventually("no marks", func() error {
		for _, pod := range w.Pods("a") {
			if sandbox.MarkedAt(&pod) != "" {
				return fmt.Errorf("%s is marked", pod.Name)
			}
		}
		return nil
	})
	w.await("a", 3)
	for _, pod := range w.Pods("a") {
		if !before[string(pod.UID)] {
			t.Errorf("Pod %s is new: another one was deleted", pod.Name)
		}
	}
}
