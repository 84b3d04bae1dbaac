// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/sandbox/sandboxtest"
)

// TestDecide reads snapshots from testdata/decide and compares the decisions with the expected ones there. readPool and readPod
// define the words of a snapshot. "go test ./worker/internal/pool -run TestDecide -rewrite" writes the decisions again.
func TestDecide(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return describe(decide(readSnapshot(t, d.Input)))
		})
	})
}

func describe(d decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "scale %s", d.Scale)
	if d.Create > 0 {
		fmt.Fprintf(&b, " create=%d", d.Create)
	}
	if d.Wake > 0 {
		fmt.Fprintf(&b, " wake=%s", d.Wake)
	}
	if d.ProtectPool {
		b.WriteString(" protect-pool")
	}
	if d.ReleasePool {
		b.WriteString(" release-pool")
	}
	b.WriteString("\n")
	for _, a := range d.Actions {
		fmt.Fprintf(&b, "%s %s (%s)", a.Verb, a.Pod.Name, a.Reason)
		if a.End.StopReason != "" {
			fmt.Fprintf(&b, " %s", a.End.StopReason)
			if a.End.Reason != "" {
				fmt.Fprintf(&b, " %s: %s", a.End.Reason, a.End.Message)
			}
		}
		if a.Detail.Reason != "" {
			fmt.Fprintf(&b, " %s", a.Detail.Reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}

type words map[string]string

func (w words) has(key string) bool { _, ok := w[key]; return ok }

func (w words) duration(t *testing.T, key string) time.Duration {
	t.Helper()
	if !w.has(key) {
		return 0
	}
	d, err := time.ParseDuration(w[key])
	must.Succeed(t, err)
	return d
}

func (w words) number(t *testing.T, key string) int {
	t.Helper()
	if !w.has(key) {
		return 0
	}
	n, err := strconv.Atoi(w[key])
	must.Succeed(t, err)
	return n
}

func readSnapshot(t *testing.T, input string) snapshot {
	t.Helper()
	s := snapshot{
		Settled: true, Window: 10 * time.Second, Revision: "r1",
		Ages: map[types.UID]time.Duration{}, Stale: map[types.UID]bool{},
	}
	for line := range strings.SplitSeq(input, "\n") {
		fields := strings.Fields(line)
		w := words{}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			w[key] = value
		}
		switch fields[0] {
		case "pool":
			readPool(t, &s, w)
		case "pod":
			name := fields[1]
			n := max(1, w.number(t, "times"))
			for i := range n {
				if n > 1 {
					name = fmt.Sprintf("%s%03d", fields[1], i)
				}
				readPod(t, &s, name, fields[2], w)
			}
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return s
}

func readPool(t *testing.T, s *snapshot, w words) {
	t.Helper()
	s.Settled = !w.has("unsettled")
	s.CrashBackoff = w.duration(t, "crash-backoff")
	s.Refused = w.duration(t, "refused")
	s.NewPod = max(w.duration(t, "new-pod"), newPodMin)
	if w.has("held-back") {
		s.HeldBack = map[string]time.Duration{"node": w.duration(t, "held-back")}
	}
	if w.has("window") {
		s.Window = w.duration(t, "window")
	}
	s.Autoscaled, s.Awaits = w.has("autoscaled"), w.has("awaits")
	if w.has("surplus") {
		s.Ages[surplusStage] = w.duration(t, "surplus")
	}
	if w.has("gone") {
		return
	}
	s.Pool = &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "default", UID: "pool"}}
	s.Pool.Spec.Replicas = int32(w.number(t, "replicas"))
	s.Pool.Spec.IdleImage = "idle:1"
	s.Pool.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "default:1"}}
	if w.has("rollout") {
		s.Pool.Annotations = map[string]string{v1alpha1.RolloutAnnotationKey: w["rollout"]}
	}
	if !w.has("unprotected") {
		s.Pool.Finalizers = []string{v1alpha1.SandboxPoolFinalizer}
	}
	if w.has("deleting") {
		s.Pool.DeletionTimestamp = &metav1.Time{}
	}
	if w.has("startup") {
		s.Pool.Spec.DefaultStartupTimeout = &metav1.Duration{Duration: w.duration(t, "startup")}
	}
}

// readPod makes a Pod whose container c2 runs what the spec asks for, unless the
// words say otherwise.
func readPod(t *testing.T, s *snapshot, name, phase string, w words) {
	t.Helper()
	pod := newPod(&v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "default", UID: "pool"}}, "r1", name, "")
	pod.UID = types.UID(name)
	pod.Generation = 2
	pod.CreationTimestamp = metav1.Unix(int64(w.number(t, "created")), 0)
	pod.Labels[v1alpha1.SandboxPhaseLabelKey] = phase
	image := "idle:1"
	if phase == "starting" || phase == "running" {
		image = "tenant:1"
	}
	if w.has("image") {
		image = w["image"]
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: image}}
	pod.Spec.NodeName = w["node"]
	if !w.has("open") {
		sandboxtest.Close(&pod.Spec)
	}
	if w.has("volume") {
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
	annotations := map[string]string{
		"marked": v1alpha1.SandboxScaleDownProtectedAnnotationKey, "rev": v1alpha1.TemplateRevisionAnnotationKey,
		"startup": v1alpha1.SandboxStartupTimeoutAnnotationKey, "detail": v1alpha1.SandboxStatusDetailAnnotationKey,
		"policy": v1alpha1.RecyclePolicyAnnotationKey,
	}
	for word, key := range annotations {
		if w.has(word) {
			pod.Annotations[key] = w[word]
		}
	}
	switch phase {
	case "starting":
		pod.Annotations[v1alpha1.SwapFromContainerIDAnnotationKey] = "c1"
	case "running", "stopping":
		pod.Annotations[v1alpha1.SandboxStartedAtAnnotationKey] = "2026-03-01T12:00:00Z"
		pod.Annotations[v1alpha1.SandboxContainerIDAnnotationKey] = "c1"
		if phase == "stopping" {
			pod.Annotations[v1alpha1.SandboxRunningImagesAnnotationKey] = `{"main":"tenant:1"}`
		}
	}
	if phase == "stopping" || phase == "failed" {
		pod.Annotations[v1alpha1.SandboxTerminatedAtAnnotationKey] = "2026-03-01T13:00:00Z"
	}
	if phase != "idle" && !w.has("nosandbox") {
		pod.Labels[v1alpha1.SandboxIDLabelKey] = "id-" + name
	}
	if w.has("labelled") {
		pod.Labels[v1alpha1.SandboxPhaseLabelKey] = w["labelled"]
	}
	if w.has("pool") {
		pod.Labels[v1alpha1.SandboxPoolLabelKey] = w["pool"]
	}
	if w.has("bare") {
		pod.Finalizers = nil
	}
	if w.has("orphan") {
		pod.OwnerReferences = nil
	}
	if w.has("deleting") {
		pod.DeletionTimestamp = &metav1.Time{}
	}
	readStatus(t, pod, phase, w)
	s.Ages[pod.UID] = w.duration(t, "age")
	s.Stale[pod.UID] = w.has("stale")
	if w.has("hooks") {
		status, message, _ := strings.Cut(w["hooks"], ":")
		s.Preparations = map[types.UID]hooks.State{pod.UID: {Status: hooks.Status(status), Message: message}}
	}
	s.Pods = append(s.Pods, pod)
}

func readStatus(t *testing.T, pod *corev1.Pod, phase string, w words) {
	t.Helper()
	cs := corev1.ContainerStatus{Name: "main", Image: pod.Spec.Containers[0].Image, ContainerID: "c2", Ready: true}
	if phase == "running" {
		cs.ContainerID = "c1"
	}
	if w.has("container") {
		cs.ContainerID = w["container"]
	}
	if w.has("reports") {
		cs.Image = w["reports"]
	}
	cs.RestartCount = int32(w.number(t, "restarts"))
	switch {
	case w.has("held"):
		cs.Ready = false
		cs.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: "back-off " + w["held"] + " restarting failed container=main"}
	case w.has("exit"):
		cs.Ready = false
		cs.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: int32(w.number(t, "exit")), ContainerID: cs.ContainerID}
	case w.has("waiting"):
		cs.Ready = false
		cs.State.Waiting = &corev1.ContainerStateWaiting{Reason: w["waiting"], Message: "so it says"}
	default:
		cs.State.Running = &corev1.ContainerStateRunning{}
	}
	cs.Ready = cs.Ready && !w.has("unready")
	pod.Status.Phase = corev1.PodRunning
	if w.has("phase") {
		pod.Status.Phase = corev1.PodPhase(w["phase"])
	}
	pod.Status.Reason = w["reason"]
	condition := corev1.ConditionFalse
	if cs.Ready && !w.has("pod-unready") {
		condition = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: condition}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{cs}
}

// I10: Pods that wait for disk space are not joined by an unlimited number of new ones.
func TestPodsThatWaitForTheirRecordsAreBounded(t *testing.T) {
	for _, tc := range []struct {
		waiting  int
		replicas int32
		want     scaleReason
	}{
		{maxUnrecorded, 3, scaleUp}, {maxUnrecorded + 1, 3, scaleUnrecorded}, {maxUnrecorded + 1, 0, scaleNone},
		{600, 300, scaleUp}, {601, 300, scaleUnrecorded},
	} {
		s := snapshot{Pool: &v1alpha1.SandboxPool{Spec: v1alpha1.SandboxPoolSpec{Replicas: tc.replicas}}, Settled: true,
			Stale: map[types.UID]bool{"stale": true}}
		add := func(uid string, finalizers ...string) {
			s.Pods = append(s.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Name: uid, UID: types.UID(uid), DeletionTimestamp: new(metav1.Now()), Finalizers: finalizers,
			}})
		}
		for i := range tc.waiting {
			add(strconv.Itoa(i), v1alpha1.SandboxProtectionFinalizer)
		}
		add("recorded")
		add("stale", v1alpha1.SandboxProtectionFinalizer)
		s.Pods = append(s.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "other", UID: "other", Finalizers: []string{v1alpha1.SandboxProtectionFinalizer},
			Labels: map[string]string{v1alpha1.SandboxPhaseLabelKey: "failed"},
		}})
		if d := decide(s); d.Scale != tc.want || (d.Create > 0) != (tc.want == scaleUp) {
			t.Errorf("%d wait beside %d replicas: %s, %d to create, want %s", tc.waiting, tc.replicas, d.Scale, d.Create, tc.want)
		}
	}
}

func TestARoundDeletesSoMany(t *testing.T) {
	d := decide(readSnapshot(t, "pool replicas=0\npod a idle times=260 marked=x age=1m"))
	if len(d.Actions) != maxScaleDown {
		t.Errorf("%d Pods are deleted at once, want %d", len(d.Actions), maxScaleDown)
	}
}
