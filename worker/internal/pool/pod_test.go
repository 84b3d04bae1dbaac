// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/sandbox"
)

func examplePool() *v1alpha1.SandboxPool {
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
		Name: "pool", Namespace: "default", UID: "pool-uid",
		Labels:      map[string]string{v1alpha1.LabelEnv: "env"},
		Annotations: map[string]string{v1alpha1.RecyclePolicyAnnotationKey: "Replace"},
	}}
	pool.Spec.IdleImage = "idle:1"
	pool.Spec.Template.Labels = map[string]string{"app": "x", v1alpha1.SandboxPhaseLabelKey: "running"}
	pool.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "main", Image: "default:1"}, {Name: "side", Image: "side:1"}},
	}
	return pool
}

func TestNewPod(t *testing.T) {
	pool := examplePool()
	pod := newPod(pool, "r1", "pool-x", "")
	if pod.Labels[v1alpha1.SandboxPhaseLabelKey] != "idle" || pod.Labels["app"] != "x" || pod.Labels[v1alpha1.LabelEnv] != "env" {
		t.Errorf("labels %v", pod.Labels)
	}
	if !metav1.IsControlledBy(pod, pool) || !sandbox.IsProtected(pod) {
		t.Errorf("owners %v, finalizers %v", pod.OwnerReferences, pod.Finalizers)
	}
	if pod.Annotations[v1alpha1.RecyclePolicyAnnotationKey] != "Replace" || pod.Annotations[v1alpha1.TemplateRevisionAnnotationKey] != "r1" {
		t.Errorf("annotations %v", pod.Annotations)
	}
	if c := pod.Spec.Containers; c[0].Image != "idle:1" || c[1].Image != "side:1" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("spec %+v", pod.Spec)
	}
	if pool.Spec.Template.Spec.Containers[0].Image != "default:1" {
		t.Error("the pool's own template was changed")
	}

	pool.Spec.PodCreationImagePolicy = v1alpha1.PodCreationImagePolicyPoolDefaultImage
	if got := newPod(pool, "r1", "n", "").Spec.Containers[0].Image; got != "default:1" {
		t.Errorf("image %s by PoolDefaultImage", got)
	}
	pool.Spec.PodCreationImagePolicy, pool.Spec.IdleImage = "", ""
	if got := newPod(pool, "r1", "n", "").Spec.Containers[0].Image; got != "default:1" {
		t.Errorf("image %s without an idle image", got)
	}
	if newPod(&v1alpha1.SandboxPool{}, "r1", "n", "").Annotations == nil {
		t.Error("a Pod without annotations cannot be claimed")
	}
}

func TestPodName(t *testing.T) {
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", 200)}}
	if name := podName(pool); len(name) != 63 {
		t.Errorf("%s has %d characters", name, len(name))
	}
}

func TestRevisionFollowsWhatPodsAreMadeFrom(t *testing.T) {
	revision := func(change func(*v1alpha1.SandboxPool)) string {
		pool := examplePool()
		change(pool)
		r, err := revisionOf(&pool.Spec, "")
		must.Succeed(t, err)
		return r
	}
	base := revision(func(*v1alpha1.SandboxPool) {})
	if got := revision(func(p *v1alpha1.SandboxPool) { p.Spec.Replicas = 7 }); got != base {
		t.Error("replicas change the revision")
	}
	for name, change := range map[string]func(*v1alpha1.SandboxPool){
		"template":   func(p *v1alpha1.SandboxPool) { p.Spec.Template.Labels["app"] = "y" },
		"idle image": func(p *v1alpha1.SandboxPool) { p.Spec.IdleImage = "idle:2" },
		"policy":     func(p *v1alpha1.SandboxPool) { p.Spec.PodCreationImagePolicy = "PoolDefaultImage" },
	} {
		if revision(change) == base {
			t.Errorf("%s does not change the revision", name)
		}
	}
}

// An update of the worker must not replace warm Pods; because the text of a revision is on them. Runtimes change the revision of
// Pods that were created with them, but not of those from before.
func TestRuntimesChangeTheRevisionOfPodsMadeWithThem(t *testing.T) {
	pool := examplePool()
	pool.Spec.IdleImage = ""
	plain, err := revisionOf(&pool.Spec, "")
	if err != nil || plain != "384dea46b7177c0b" {
		t.Fatalf("the revision of Pods without runtimes has become %s (%v)", plain, err)
	}
	made := map[string]*corev1.Pod{"before": newPod(pool, plain, "before", "")}
	snapshot := func() *snapshot {
		now, err := revisionOf(&pool.Spec, "")
		must.Succeed(t, err)
		before, err := unrenderedRevisionOf(&pool.Spec, "")
		must.Succeed(t, err)
		return &snapshot{Revision: now, Unrendered: before}
	}
	check := func(when string, want ...string) {
		t.Helper()
		s := snapshot()
		for name, pod := range made {
			if got := outdated(s, pod); got != slices.Contains(want, name) {
				t.Errorf("%s: outdated(%s) is %v", when, name, got)
			}
		}
	}
	check("no runtimes")
	pool.Spec.Runtimes = []v1alpha1.SandboxRuntimeSpec{{Name: "e2b", Port: new(int32(1))}}
	made["with"] = newPod(pool, snapshot().Revision, "with", "")
	if c := made["with"].Spec.Containers[0]; len(c.Ports) != 1 || c.ReadinessProbe == nil {
		t.Errorf("the runtime adds %v, %v", c.Ports, c.ReadinessProbe)
	}
	check("with a runtime")
	pool.Spec.Runtimes[0].Description = "for people"
	check("described")
	pool.Spec.Runtimes[0].Port = new(int32(2))
	check("another port", "with")
	pool.Spec.Runtimes = nil
	check("without it", "with")
	pool.Spec.Template.Labels["app"] = "y"
	check("another template", "before", "with")
}

// A worker that delivers the daemon replaces the Pods that lack it, and no others.
func TestTheDaemonChangesTheRevisionOfPodsThatGetIt(t *testing.T) {
	const image = "atoll-sandboxd:v1"
	plain := func(p *v1alpha1.SandboxPool) {
		p.Spec.Runtimes = []v1alpha1.SandboxRuntimeSpec{{Name: "web", Port: new(int32(80))}}
	}
	gets := func(p *v1alpha1.SandboxPool) { p.Spec.Runtimes = []v1alpha1.SandboxRuntimeSpec{{Name: "e2b"}} }
	brings := func(p *v1alpha1.SandboxPool) {
		gets(p)
		p.Spec.Template.Annotations = map[string]string{v1alpha1.SandboxdAnnotationKey: v1alpha1.SandboxdFromImage}
	}
	for name, tc := range map[string]struct {
		change   func(*v1alpha1.SandboxPool)
		replaced bool
	}{
		"no runtimes": {func(*v1alpha1.SandboxPool) {}, false}, "another runtime": {plain, false}, "brought": {brings, false},
		"delivered": {gets, true},
	} {
		pool := examplePool()
		tc.change(pool)
		for _, of := range []func(*v1alpha1.SandboxPoolSpec, string) (string, error){revisionOf, unrenderedRevisionOf} {
			before, err := of(&pool.Spec, "")
			must.Succeed(t, err)
			now, err := revisionOf(&pool.Spec, image)
			must.Succeed(t, err)
			unrendered, err := unrenderedRevisionOf(&pool.Spec, image)
			must.Succeed(t, err)
			if got := outdated(&snapshot{Revision: now, Unrendered: unrendered}, newPod(pool, before, "p", "")); got != tc.replaced {
				t.Errorf("%s: a Pod from before is outdated: %t", name, got)
			}
			if pod := newPod(pool, now, "p", image); outdated(&snapshot{Revision: now, Unrendered: unrendered}, pod) ||
				len(pod.Spec.InitContainers) > 0 != tc.replaced {
				t.Errorf("%s: a new Pod is outdated, or has init containers %v", name, pod.Spec.InitContainers)
			}
		}
	}
	pool := examplePool()
	gets(pool)
	if r := sandbox.Recyclable(newPod(pool, "r", "p", image), &pool.Spec); r.Reset {
		t.Error("a Pod with a volume that another container has written may be reset")
	}
}

// TestPatchesApply applies each patch to the Pod that it was made for, and to one that has changed since.
func TestPatchesApply(t *testing.T) {
	pool := examplePool()
	seen := newPod(pool, "r1", "pool-x", "")
	seen.UID, seen.ResourceVersion = "u", "5"
	bare := seen.DeepCopy()
	bare.Finalizers, bare.OwnerReferences = []string{"other"}, nil
	dying := seen.DeepCopy()
	dying.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time}
	dying.Finalizers = []string{"other", v1alpha1.SandboxProtectionFinalizer}

	tests := map[string]struct {
		make  func() ([]byte, error)
		pod   *corev1.Pod
		check func(*corev1.Pod) bool
		moved func(*corev1.Pod)
	}{
		"mark": {make: func() ([]byte, error) { return sandbox.MarkPatch(seen, time.Unix(0, 0)), nil }, pod: seen,
			check: func(p *corev1.Pod) bool { return sandbox.MarkedAt(p) == "1970-01-01T00:00:00Z" },
			moved: func(p *corev1.Pod) { p.Labels[v1alpha1.SandboxPhaseLabelKey] = "running" }},
		"unmark": {make: func() ([]byte, error) { return sandbox.UnmarkPatch(seen), nil }, pod: seen,
			check: func(p *corev1.Pod) bool { return sandbox.MarkedAt(p) == "" },
			moved: func(p *corev1.Pod) { p.DeletionTimestamp = dying.DeletionTimestamp }},
		"protect": {make: func() ([]byte, error) { return protectPatch(bare, pool) }, pod: bare,
			check: func(p *corev1.Pod) bool {
				return sandbox.IsProtected(p) && p.Finalizers[0] == "other" && metav1.IsControlledBy(p, pool)
			},
			moved: func(p *corev1.Pod) { p.ResourceVersion = "6" }},
		"bury": {make: func() ([]byte, error) { return sandbox.BuryPatch(dying, nil), nil }, pod: dying,
			check: func(p *corev1.Pod) bool { return len(p.Finalizers) == 1 && p.Finalizers[0] == "other" },
			moved: func(p *corev1.Pod) { p.Finalizers = p.Finalizers[1:] }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := tt.make()
			must.Succeed(t, err)
			after, err := applyPatch(t, tt.pod, body)
			if err != nil || !tt.check(after) {
				t.Errorf("on the Pod as seen: %v, %+v", err, after)
			}
			other := tt.pod.DeepCopy()
			tt.moved(other)
			if _, err := applyPatch(t, other, body); err == nil {
				t.Error("applied to a Pod that has moved on")
			}
		})
	}
}

func applyPatch(t *testing.T, pod *corev1.Pod, body []byte) (*corev1.Pod, error) {
	t.Helper()
	p, err := jsonpatch.DecodePatch(body)
	must.Succeed(t, err)
	before, err := json.Marshal(pod)
	must.Succeed(t, err)
	after, err := p.Apply(before)
	if err != nil {
		return nil, err
	}
	changed := &corev1.Pod{}
	return changed, json.Unmarshal(after, changed)
}
