// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/admission/quota"
)

// plugin responds as a test says, and records the questions.
type plugin struct {
	mu             sync.Mutex
	asked, deleted []admission.Change
	create         func(*admission.Change) (admission.Verdict, error)
	drop           func(*admission.Change) (admission.Verdict, error)
}

func (p *plugin) Name() string { return "test" }

func (p *plugin) PreCreatePool(_ context.Context, change *admission.Change) (admission.Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, *change)
	if p.create == nil {
		return admission.Admit(change.To), nil
	}
	return p.create(change)
}

func (p *plugin) PreDeletePool(_ context.Context, change *admission.Change) (admission.Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deleted = append(p.deleted, *change)
	if p.drop == nil {
		return admission.Admit(change.To), nil
	}
	return p.drop(change)
}

func (p *plugin) set(create, drop func(*admission.Change) (admission.Verdict, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.create, p.drop = create, drop
}

func (p *plugin) questions() (created, deleted []admission.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked), slices.Clone(p.deleted)
}

func refusing(reason admission.Reason, message string) func(*admission.Change) (admission.Verdict, error) {
	return func(c *admission.Change) (admission.Verdict, error) {
		return admission.Refuse(c.From, reason, message, time.Hour), nil
	}
}

// touch causes a reconcile of the Env without changing its content.
func (w *world) touch(env, value string) {
	w.t.Helper()
	w.Must(w.patchEnv(env, "by-hand", types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}}}`, value)))
}

// TestAdmissionIsFrozen: a member gets what is admitted and added, and no plugin is asked again: not at later reconciles, not
// after a restart, not when a re-applied manifest has wiped the snapshot out.
func TestAdmissionIsFrozen(t *testing.T) {
	w := newIdleWorld(t)
	p := &plugin{}
	p.set(func(c *admission.Change) (admission.Verdict, error) {
		c.Pool.Labels["added"] = "label"
		c.Pool.Spec.Template.Annotations = map[string]string{"added": "annotation"}
		main := &c.Pool.Spec.Template.Spec.Containers[0]
		main.Env = append(main.Env, corev1.EnvVar{Name: "ADDED", Value: "variable"})
		main.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: *main.Resources.Limits.Cpu()}
		return admission.Verdict{Replicas: 2, Reason: admission.QuotaExceeded, Message: "room for two"}, nil
	}, nil)
	w.startWith(p)
	w.apply(templateManifest)
	manifest := kiosk(`{name: m, spec: {replicas: 5}, config: {inlineResources: {limits: {cpu: 250m}}}}`)
	w.apply(manifest)
	w.awaitReady("kiosk")
	check := func(replicas int32) {
		t.Helper()
		pool := w.Pool("m")
		if pool.Spec.Replicas != replicas || pool.Labels["added"] != "label" || pool.Spec.Template.Annotations["added"] != "annotation" ||
			!slices.ContainsFunc(pool.Spec.Template.Spec.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Name == "ADDED" }) {
			t.Errorf("the pool: %s", toJSON(pool))
		}
		if frozen := w.frozen("kiosk", "m"); !strings.Contains(frozen, `"added":"label"`) ||
			!strings.Contains(frozen, fmt.Sprintf(`"replicas":%d`, replicas)) {
			t.Errorf("the snapshot: %s", frozen)
		}
	}
	check(2)
	if note := w.awaitEvent("kiosk", v1alpha1.ConditionReason(admission.QuotaExceeded)); !strings.Contains(note,
		"member m gets 2 of 5 replicas: room for two") {
		t.Errorf("the event: %s", note)
	}
	w.Eventually("the Env to tell", func() error {
		ready := meta.FindStatusCondition(w.Env("kiosk").Status.Conditions, v1alpha1.SandboxEnvConditionReady)
		return wait.If(ready.Status == metav1.ConditionTrue && strings.Contains(ready.Message,
			"m: 2 of 5 replicas were admitted: QuotaExceeded: room for two; apply"), ready.Message)
	})
	asked, _ := p.questions()
	if len(asked) != 1 || asked[0].From != 0 || asked[0].To != 5 || asked[0].Env != w.Key("kiosk") || asked[0].Probe ||
		!strings.HasPrefix(asked[0].Key, string(w.Env("kiosk").UID)+"/m/") {
		t.Errorf("was asked %+v", asked)
	}
	w.stop()
	w.startWith(p)
	// The user's value holds now.
	w.apply(manifest)
	w.awaitReplicas("m", 5)
	w.Eventually("the Env to tell no more", func() error {
		ready := meta.FindStatusCondition(w.Env("kiosk").Status.Conditions, v1alpha1.SandboxEnvConditionReady)
		return wait.If(!strings.Contains(ready.Message, "admitted"), ready.Message)
	})
	w.Eventually("the snapshot to be back", func() error {
		return wait.If(strings.Contains(w.frozen("kiosk", "m"), `"added":"label"`), w.frozen("kiosk", "m"))
	})
	check(5)
	if again, _ := p.questions(); len(again) != 1 {
		t.Errorf("was asked again: %+v", again[1:])
	}

	// A refresh is a first rendering again: additions are kept, and no member loses replicas.
	w.apply(strings.ReplaceAll(templateManifest, "version: v1.0.0", "version: v1.1.0"))
	p.set(refusing(admission.QuotaExceeded, "nothing left"), nil)
	refresh := func(dryRun bool) *sandboxv1.RefreshedMember {
		t.Helper()
		out, err := w.refresh(&sandboxv1.RefreshEnvRequest{DryRun: dryRun})
		w.Must(err)
		return out.GetMembers()[0]
	}
	if got := refresh(false); got.GetOutcome() != sandboxv1.RefreshedMember_REFUSED || !strings.Contains(got.GetMessage(), "nothing left") {
		t.Errorf("a refresh that is refused: %v", got)
	}
	check(5)
	p.set(func(c *admission.Change) (admission.Verdict, error) {
		c.Pool.Labels["added"] = "label"
		c.Pool.Spec.Template.Annotations = map[string]string{"added": "annotation", "new": "too"}
		main := &c.Pool.Spec.Template.Spec.Containers[0]
		main.Env = append(main.Env, corev1.EnvVar{Name: "ADDED", Value: "variable"})
		return admission.Admit(c.To), nil
	}, nil)
	for _, want := range []sandboxv1.RefreshedMember_Outcome{sandboxv1.RefreshedMember_WOULD_REFRESH, sandboxv1.RefreshedMember_REFRESHED} {
		dryRun := want == sandboxv1.RefreshedMember_WOULD_REFRESH
		if got := refresh(dryRun); got.GetOutcome() != want {
			t.Errorf("a refresh, dry run %t: %v", dryRun, got)
		}
	}
	asked, _ = p.questions()
	var probes []bool // a refresh that finds the Env changed meanwhile asks again
	for _, c := range asked {
		probes = append(probes, c.Probe)
	}
	if n := len(asked); n < 4 || asked[1].Probe || !slices.Equal(slices.Compact(probes), []bool{false, true, false}) || asked[n-1].To != 5 {
		t.Errorf("was asked %+v", asked[1:])
	}
	w.Eventually("the refreshed pool", func() error {
		return wait.If(w.Pool("m").Spec.Template.Annotations["new"] == "too", toJSON(w.Pool("m")))
	})
	check(5)
}

// TestRefusedMember: no pool is created, the status gives the reason, and plugins are not asked at every reconcile. They are
// asked at once about a changed member, and about an unchanged one with the same key as before a restart.
func TestRefusedMember(t *testing.T) {
	w := newIdleWorld(t)
	p := &plugin{}
	p.set(refusing(admission.QuotaExceeded, "nothing left"), nil)
	w.startWith(p)
	w.apply(templateManifest)
	w.apply(kiosk(`{name: m, spec: {replicas: 3}}`))
	w.awaitState("kiosk", "m", v1alpha1.ObservedMemberStateSaturated)
	ready := w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionReady, metav1.ConditionTrue, v1alpha1.ReasonMembersReady)
	if !strings.Contains(ready, "m: its pool is not created yet: nothing left") {
		t.Errorf("Ready says %q", ready)
	}
	w.awaitEvent("kiosk", v1alpha1.ConditionReason(admission.QuotaExceeded))
	for i := range 5 {
		w.touch("kiosk", fmt.Sprint(i))
	}
	w.awaitNoPool("m")
	asked, _ := p.questions()
	if len(asked) != 1 {
		t.Errorf("was asked %d times", len(asked))
	}
	w.stop()
	w.startWith(p)
	w.Eventually("the question after a restart", func() error {
		if again, _ := p.questions(); len(again) < 2 {
			return errors.New("not yet")
		} else if again[1].Key != asked[0].Key {
			t.Errorf("key %s, before the restart %s", again[1].Key, asked[0].Key)
		}
		return nil
	})
	p.set(refusing(admission.InvalidSpec, "never"), nil)
	w.scale("by-hand", 4)
	w.awaitState("kiosk", "m", v1alpha1.ObservedMemberStateMissing)
	w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersMissing)
	p.set(nil, nil)
	w.scale("by-hand", 1)
	w.awaitReady("kiosk")
	if n := w.awaitPool("m").Spec.Replicas; n != 1 {
		t.Errorf("%d replicas", n)
	}
}

// TestPluginWithoutAnAnswer: the member waits, and is asked about again with the usual back-off; other members are not delayed.
func TestPluginWithoutAnAnswer(t *testing.T) {
	w := newIdleWorld(t)
	p := &plugin{}
	p.set(func(c *admission.Change) (admission.Verdict, error) {
		if c.Pool.Name == "bad" {
			panic("no idea")
		}
		return admission.Admit(c.To), nil
	}, nil)
	w.startWith(p)
	w.apply(templateManifest)
	w.apply(kiosk(`{name: bad, spec: {replicas: 1}}`, `{name: good, spec: {replicas: 1}}`))
	w.awaitPool("good")
	ready := w.awaitCondition("kiosk", v1alpha1.SandboxEnvConditionReady, metav1.ConditionFalse, v1alpha1.ReasonMembersMissing)
	if !strings.Contains(ready, "bad: asking about member bad: admission plugin test, PreCreatePool: panicked: no idea") ||
		strings.Contains(ready, "\n") {
		t.Errorf("Ready says %q", ready)
	}
	p.set(nil, nil)
	w.awaitPool("bad")
	w.awaitReady("kiosk")
}

// TestOrphanThatMustNotGo: the orphan stays, and is deleted once that is admitted.
func TestOrphanThatMustNotGo(t *testing.T) {
	w := newIdleWorld(t)
	p := &plugin{}
	p.set(nil, func(c *admission.Change) (admission.Verdict, error) {
		return admission.Refuse(c.From, "InUse", "still billed", time.Millisecond), nil
	})
	w.startWith(p)
	w.apply(templateManifest)
	w.apply(kiosk(`{name: stays, spec: {replicas: 1}}`, `{name: goes, spec: {replicas: 3}}`))
	w.awaitPool("goes")
	w.awaitReady("kiosk")
	w.apply(kiosk(`{name: stays, spec: {replicas: 1}}`))
	note := w.awaitEvent("kiosk", "InUse")
	if !strings.Contains(note, "pool goes, which no member names any more, is not deleted yet: still billed") {
		t.Errorf("the event: %s", note)
	}
	for i := range 5 {
		w.touch("kiosk", fmt.Sprint(i))
	}
	if _, deleted := p.questions(); len(deleted) != 1 || deleted[0].From != 3 || deleted[0].To != 0 ||
		deleted[0].Key != string(w.Pool("goes").UID) {
		t.Errorf("was asked %+v", deleted)
	}
	p.set(nil, nil)
	w.awaitNoPool("goes") // after askAgainMin at the latest
}

// TestTeamQuota: of two members of one team that are created at the same time, one gets what the other leaves.
func TestTeamQuota(t *testing.T) {
	w := newIdleWorld(t)
	source := make(chan *quota.Source, 1)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: quota.Name},
		Data: map[string]string{"tools": "maxReplicas: 5"}}
	w.Must(w.Live.Create(w.ctx, config))
	w.stop = w.run(w.Plane.Config(), func(ctx context.Context, mgr ctrl.Manager) error {
		limits, err := quota.NewSource(ctx, mgr.GetConfig(), w.Namespace, logr.Discard())
		if err != nil {
			return err
		}
		source <- limits
		team := quota.New(quota.Options{ClusterID: local, Reader: mgr.GetCache(), Limits: limits.Limits, Clock: clock.RealClock{}})
		r, err := New(mgr, Options{
			ClusterID: local, Namespace: w.Namespace, Clock: clock.RealClock{}, Local: clock.RealClock{},
			Admission: admission.New(clock.RealClock{}, team), Registerer: prometheus.NewRegistry(),
		})
		if err != nil {
			return err
		}
		return errors.Join(mgr.Add(limits), r.SetupWithManager(ctx, mgr))
	})
	w.apply(templateManifest)
	var manifests []string
	envs := []string{"one", "two", "three", "four"}
	for _, name := range envs {
		manifests = append(manifests,
			strings.ReplaceAll(kiosk(`{name: `+name+`, spec: {replicas: 2}, config: {labels: {scheduling.navix.sh/team: tools}}}`), "kiosk", name))
	}
	w.apply(strings.Join(manifests, "\n---"))
	count := func() (sum int32, pools int) {
		list := &v1alpha1.SandboxPoolList{}
		w.Must(w.Live.List(w.ctx, list, client.InNamespace(w.Namespace)))
		for i := range list.Items {
			sum += list.Items[i].Spec.Replicas
		}
		return sum, len(list.Items)
	}
	saturated := func() (n int) {
		for _, name := range envs {
			c := meta.FindStatusCondition(w.Env(name).Status.Conditions, v1alpha1.SandboxEnvConditionReady)
			if c != nil && strings.Contains(c.Message,
				"the quota of team tools has room for 0 of 2 replicas: its other pools hold 5 of 5 replicas") {
				n++
			}
		}
		return n
	}
	w.Eventually("the team to have all it may", func() error {
		sum, pools := count()
		return wait.If(sum == 5 && pools == 3 && saturated() == 1,
			fmt.Sprintf("%d replicas in %d pools, %d members refused", sum, pools, saturated()))
	})
	// A lowered limit takes nothing away.
	config.Data["tools"] = "maxReplicas: 1"
	w.Must(w.Live.Update(w.ctx, config))
	limits := <-source
	w.Eventually("the new limit to be read", func() error {
		all, ok := limits.Limits()
		return wait.If(ok && *all.Of("tools").Replicas == 1, fmt.Sprintf("%+v, %t", all, ok))
	})
	for _, name := range envs {
		w.touch(name, "1")
		w.awaitCondition(name, v1alpha1.SandboxEnvConditionReady, metav1.ConditionTrue, v1alpha1.ReasonMembersReady)
	}
	if sum, pools := count(); sum != 5 || pools != 3 {
		t.Errorf("%d replicas in %d pools after the limit was lowered", sum, pools)
	}
}

// TestAsksAreForgotten with the members, orphans and Envs that they were about.
func TestAsksAreForgotten(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	a := newRefusals(clk)
	env := types.NamespacedName{Name: "e"}
	refuse := func(v verb, name string) {
		a.add(env, v, name, question{key: name}, admission.Refuse(0, admission.QuotaExceeded, "", time.Minute))
	}
	refuse(verbAdmit, "a")
	refuse(verbAdmit, "b")
	refuse(verbDelete, "c")
	refuse(verbDelete, "d")
	a.prune(env, &plan{members: []memberPlan{{name: "a", verb: verbRefuse}, {name: "b", verb: verbAdmit}}, orphans: []string{"c"}})
	if got := a.waiting(env); len(got) != 2 || got[askedAbout{verbAdmit, "a"}].wait == 0 || got[askedAbout{verbDelete, "c"}].wait == 0 {
		t.Errorf("what stands: %+v", got)
	}
	clk.SetTime(clk.Now().Add(2 * time.Minute))
	if got := a.waiting(env); got != nil {
		t.Errorf("after the wait: %+v", got)
	}
	a.prune(env, nil)
	if len(a.envs) != 0 {
		t.Errorf("kept: %+v", a.envs)
	}
}
