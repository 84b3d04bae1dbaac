// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/pool/status"
)

func recorded(r *events.FakeRecorder) []string {
	var all []string
	for {
		select {
		case e := <-r.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// Whatever happens, a pool's Events are few, and the next one counts those that were left out.
func TestEventsNeverBurst(t *testing.T) {
	recorder, clk := events.NewFakeRecorder(1000), testclock.NewFakePassiveClock(time.Unix(1000, 0))
	n := newNotices(recorder, clk)
	p, q := examplePool(), examplePool()
	q.Name = "other"
	for i := range 200 {
		n.warn(p, &corev1.Pod{}, reasonSandboxEnded, "Fail", "sandbox %d ended", i)
	}
	if got := recorded(recorder); len(got) != noticeBurst || got[0] != "Warning SandboxEnded sandbox 0 ended" {
		t.Errorf("%d events: %q", len(got), got)
	}
	n.warn(q, nil, reasonSandboxEnded, "Fail", "another pool's")
	n.warn(p, nil, reasonCreationFailed, "Create", "another reason: %s", strings.Repeat("x", 5000))
	if got := recorded(recorder); len(got) != 2 || len(got[1]) > 1024 {
		t.Errorf("%d events of others: %q", len(got), got)
	}
	clk.SetTime(clk.Now().Add(noticeEvery))
	n.warn(p, nil, reasonSandboxEnded, "Fail", "one more")
	n.warn(p, nil, reasonSandboxEnded, "Fail", "too early")
	if got := recorded(recorder); len(got) != 1 || got[0] != "Warning SandboxEnded one more (and 195 more of this kind before)" {
		t.Errorf("later: %q", got)
	}
	for _, pool := range []*v1alpha1.SandboxPool{p, q} {
		n.forget(types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name})
	}
	if len(n.pools) != 0 {
		t.Errorf("%d pools are remembered", len(n.pools))
	}
}

func idlePodOf(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := newPod(examplePool(), "r1", name, "")
	pod.UID = types.UID(name)
	for _, f := range change {
		f(pod)
	}
	return pod
}

func waitsFor(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "so it says"},
		}}}
	}
}

func readyNow(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func unscheduled(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
		Message: "no room"}}
}

// A cause is reported when it appears; a kubelet that reports it in turn in two words causes no second Event.
func TestPodsThatDoNotBecomeReadyAreToldOnce(t *testing.T) {
	recorder, clk := events.NewFakeRecorder(1000), testclock.NewFakePassiveClock(time.Unix(1000, 0))
	n, p := newNotices(recorder, clk), examplePool()
	look := func(ages map[types.UID]time.Duration, pods ...*corev1.Pod) (string, []string) {
		causes := status.Count(pods, ages).Causes
		n.stuck(p, causes)
		return causes.String(), recorded(recorder)
	}
	want := func(when, gotMessage string, gotEvents []string, message string, events ...string) {
		t.Helper()
		if gotMessage != message || fmt.Sprint(gotEvents) != fmt.Sprint(events) {
			t.Errorf("%s: %q and %q, want %q and %q", when, gotMessage, gotEvents, message, events)
		}
	}
	fine := idlePodOf("fine", readyNow)
	young := map[types.UID]time.Duration{"b": time.Second, "c": time.Second}
	m, e := look(young, fine, idlePodOf("b", waitsFor("ContainerCreating")), idlePodOf("c", unscheduled))
	want("on their way", m, e, "")
	m, e = look(nil, fine, idlePodOf("b", waitsFor("ErrImagePull")), idlePodOf("c", waitsFor("ErrImagePull")))
	want("pulls fail", m, e, "ImagePullBackOff: 2", "Warning PodsNotReady idle pods that do not become ready: 2: ImagePullBackOff: so it says")
	m, e = look(nil, idlePodOf("b", waitsFor("ImagePullBackOff")), idlePodOf("c", waitsFor("ErrImagePull")))
	want("in turns", m, e, "ImagePullBackOff: 2")
	old := map[types.UID]time.Duration{"b": status.StuckAfter, "c": status.StuckAfter}
	m, e = look(old, idlePodOf("b", waitsFor("ImagePullBackOff")), idlePodOf("c", unscheduled))
	want("and no room", m, e, "ImagePullBackOff: 1, Unschedulable: 1",
		"Warning PodsNotReady idle pods that do not become ready: 1: Unschedulable: no room")
	m, e = look(nil, fine, idlePodOf("d", unscheduled, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }))
	want("over", m, e, "")
	m, e = look(nil, idlePodOf("b", waitsFor("ImagePullBackOff")))
	want("again", m, e, "ImagePullBackOff: 1", "Warning PodsNotReady idle pods that do not become ready: 1: ImagePullBackOff: so it says")
}

func TestReplacementsAreTimed(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	r, key := newMemory(clk).replacements, types.NamespacedName{Name: "p"}
	step := func(d time.Duration) { clk.SetTime(clk.Now().Add(d)) }
	want := func(when string, got []time.Duration, want ...time.Duration) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	r.gone(key)
	want("ready before the first look", r.observe(key, []*corev1.Pod{idlePodOf("a", readyNow)}))
	step(time.Second)
	r.gone(key)
	step(2 * time.Second)
	want("not ready yet", r.observe(key, []*corev1.Pod{idlePodOf("a"), idlePodOf("b")}))
	want("the first", r.observe(key, []*corev1.Pod{idlePodOf("a", readyNow), idlePodOf("b", readyNow)}), 3*time.Second)
	want("the second", r.observe(key, []*corev1.Pod{idlePodOf("a", readyNow), idlePodOf("b"), idlePodOf("c", readyNow)}), 2*time.Second)
	want("of no claim", r.observe(key, []*corev1.Pod{idlePodOf("b", readyNow), idlePodOf("c", readyNow), idlePodOf("d", readyNow)}))
	for range 2 * maxReplaced {
		r.gone(key)
	}
	if n := len(r.pools[key].went); n != maxReplaced {
		t.Errorf("%d are waited for", n)
	}
}

// A kubelet's alternating messages about a starting Pod are written every 10 s at most.
func TestStatusDetailsAreKeptApart(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	line, key := newMemory(clk).timeline, types.NamespacedName{Name: "p"}
	stages := map[types.UID]string{"a": "starting/1"}
	line.observe(key, stages)
	line.wrote(key, "a")
	line.wrote(key, "unknown")
	clk.SetTime(clk.Now().Add(3 * time.Second))
	line.observe(key, stages)
	if wait := line.noted(key); len(wait) != 1 || wait["a"] != noteEvery-3*time.Second {
		t.Errorf("%v", wait)
	}
	line.observe(key, map[types.UID]string{"a": "starting/2"})
	if wait := line.noted(key); wait != nil {
		t.Errorf("the next sandbox's: %v", wait)
	}
	s := readSnapshot(t, "pool replicas=1\npod a starting age=5s startup=60 waiting=ErrImagePull")
	if d := describe(decide(s)); !strings.Contains(d, "Detail a") {
		t.Errorf("written at once: %s", d)
	}
	s.Noted = map[types.UID]time.Duration{"a": 7 * time.Second}
	if d := describe(decide(s)); strings.Contains(d, "Detail a") || !strings.Contains(d, "wake=7s") {
		t.Errorf("too early: %s", d)
	}
}

// A sandbox that a timeout released is reported once, when its Pod is reset or replaced, and never in bursts; a release is not
// reported.
func TestTimeoutsAreTold(t *testing.T) {
	recorder, clk := events.NewFakeRecorder(1000), testclock.NewFakePassiveClock(time.Unix(1000, 0))
	m, err := newMetrics(prometheus.NewRegistry())
	must.Succeed(t, err)
	r := &Reconciler{notices: newNotices(recorder, clk), metrics: m, memory: newMemory(clk)}
	s := &snapshot{Pool: examplePool()}
	stopping := func(reason string) *corev1.Pod {
		return idlePodOf("p-1", func(pod *corev1.Pod) {
			pod.Labels[v1alpha1.SandboxPhaseLabelKey] = v1alpha1.SandboxPhaseStopping
			pod.Labels[v1alpha1.SandboxIDLabelKey] = "01-east"
			pod.Annotations[v1alpha1.SandboxTerminatedAtAnnotationKey] = "2026-03-01T12:00:00Z"
			pod.Annotations[v1alpha1.SandboxFailureReasonAnnotationKey] = reason
			pod.Annotations[v1alpha1.SandboxFailureMessageAnnotationKey] = "no activity for 1m0s"
		})
	}
	want := func(when string, want ...string) {
		t.Helper()
		if got := recorded(recorder); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	r.reportAction(s, action{Verb: verbRecycle, Pod: stopping("IdleTimeout")})
	want("reset", "Normal IdleTimeout sandbox 01-east on pod p-1 was released: no activity for 1m0s")
	r.reportAction(s, action{Verb: verbDelete, Reason: reasonNotRecyclable, Pod: stopping("MaxLifetime")})
	want("replaced", "Normal MaxLifetime sandbox 01-east on pod p-1 was released: no activity for 1m0s")
	r.reportAction(s, action{Verb: verbRecycle, Pod: stopping("")})
	r.reportAction(s, action{Verb: verbDelete, Reason: reasonOutdated, Pod: idlePodOf("idle")})
	want("released, and an idle one replaced")
	for range 100 {
		r.reportAction(s, action{Verb: verbRecycle, Pod: stopping("IdleTimeout")})
	}
	if n := len(recorded(recorder)); n != noticeBurst-1 {
		t.Errorf("%d Events of 100 timeouts at once", n)
	}
}
