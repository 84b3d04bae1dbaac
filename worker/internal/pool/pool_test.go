// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/sandbox"
)

func TestReplicasAreKept(t *testing.T) {
	w, pods := newIdlePool(t, 5)
	for _, pod := range pods {
		if !sandbox.IsProtected(&pod) || pod.Spec.Containers[0].Image != "test.local/idle:1" {
			t.Errorf("pod %s: finalizers %v, image %s", pod.Name, pod.Finalizers, pod.Spec.Containers[0].Image)
		}
	}
	w.Must(w.Live.Delete(w.ctx, &pods[0]))
	w.awaitGone(&pods[0])
	w.awaitIdle("p", 5, 0)
	w.setReplicas("p", 60)
	w.awaitIdle("p", 60, 0)
	w.Eventually("the status", func() error {
		st := w.Pool("p").Status
		return wait.If(st.Phase == v1alpha1.SandboxPoolPhaseReady && st.IdleReplicas == 60 && st.UnavailableIdleReplicas == 0,
			fmt.Sprintf("%s, %d idle, %d unavailable", st.Phase, st.IdleReplicas, st.UnavailableIdleReplicas))
	})
	if w.writes.Load() > 200 {
		t.Errorf("%d writes for 61 Pods", w.writes.Load())
	}
}

func TestRestWritesNothing(t *testing.T) {
	w, _ := newIdlePool(t, 3)
	w.Eventually("the status", func() error {
		st := w.Pool("p").Status
		return wait.If(st.Phase == v1alpha1.SandboxPoolPhaseReady, string(st.Phase))
	})
	// The last counts may come after the phase.
	w.Eventually("five reconciles without a write", func() error {
		quiet := w.writes.Load()
		for range 5 {
			if _, err := w.Reconcile(w.ctx, reconcile.Request{NamespacedName: w.Key("p")}); err != nil {
				return err
			}
		}
		return wait.If(w.writes.Load() == quiet, "it wrote")
	})
}

// A queue's length is in the status long before the next resync of the pool, and in few writes.
func TestPendingRequests(t *testing.T) {
	t.Parallel()
	w, _ := newIdlePool(t, 1)
	w.Eventually("the status", func() error {
		st := w.Pool("p").Status
		return wait.If(st.Phase == v1alpha1.SandboxPoolPhaseReady, string(st.Phase))
	})
	quiet := w.writes.Load()
	for _, n := range []int32{7, 8000, 0} {
		start := time.Now()
		w.lengths.set(w.Key("p"), n)
		w.Eventually("pendingRequests", func() error {
			got := w.Pool("p").Status.PendingRequests
			return wait.If(got == n, fmt.Sprintf("%d, want %d", got, n))
		})
		if took := time.Since(start); took > 5*time.Second { // half a resync
			t.Errorf("%d was written after %s", n, took)
		}
	}
	if got := w.writes.Load() - quiet; got != 3 {
		t.Errorf("%d writes for three lengths", got)
	}
}

func TestFinalizerIsPutBack(t *testing.T) {
	w, pod := newIdlePod(t)
	w.Must(w.Live.Patch(w.ctx, &pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`))))
	w.Eventually("the finalizer and the owner", func() error {
		current := w.pod(pod.Name)
		return wait.If(sandbox.IsProtected(current) && metav1.IsControlledBy(current, w.Pool("p")),
			fmt.Sprintf("finalizers %v, owners %v", current.Finalizers, current.OwnerReferences))
	})
}

// I1, I6: labels of a claimed Pod that are edited by hand are written back. Its sandbox continues, and no other Pod is created
// for it.
func TestI6_LabelsOfASandboxAreWrittenBack(t *testing.T) {
	w, pods := newIdlePool(t, 2)
	w.Must(w.claim(&pods[0], "sb-a", "test.local/idle:1", 0))
	want := w.pod(pods[0].Name)
	for _, edit := range []string{
		`"agentbox.navix.sh/sandbox-phase": "odd"`, `"agentbox.navix.sh/sandbox-phase": null`, `"agentbox.navix.sh/sandbox-phase": "idle"`,
		`"agentbox.navix.sh/sandbox-phase": "failed"`, `"agentbox.navix.sh/sandbox-pool": null`, `"agentbox.navix.sh/sandbox-pool": "other"`,
		`"agentbox.navix.sh/sandbox-id": null`,
	} {
		w.Must(w.Live.Patch(w.ctx, want.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {`+edit+`}}}`))))
		w.Eventually("the labels to be back after "+edit, func() error {
			got := w.pod(want.Name)
			return wait.If(got.UID == want.UID && got.DeletionTimestamp == nil && maps.Equal(got.Labels, want.Labels), got.Labels)
		})
	}
	w.awaitIdle("p", 1, 1)
	list := &corev1.PodList{}
	w.Must(w.Live.List(w.ctx, list, client.InNamespace(want.Namespace)))
	if len(list.Items) != 2 {
		t.Errorf("%d Pods, not 2", len(list.Items))
	}
}

// TestRecordBeforeThePodGoes: however a Pod is deleted, its record is kept before its finalizer is removed.
func TestRecordBeforeThePodGoes(t *testing.T) {
	w, pods := newIdlePool(t, 2)
	w.Must(w.claim(&pods[0], "sb-a", "test.local/idle:1", 0))
	w.ledger.setClosed(true)
	now := int64(0)
	w.Must(w.Live.Delete(w.ctx, &pods[0], &client.DeleteOptions{GracePeriodSeconds: &now}))
	w.Eventually("refused records", func() error {
		w.ledger.mu.Lock()
		defer w.ledger.mu.Unlock()
		return wait.If(w.ledger.refused >= 2, "not tried twice")
	})
	if !sandbox.IsProtected(w.pod(pods[0].Name)) {
		t.Fatal("the Pod may go, and its record is not kept")
	}
	w.ledger.setClosed(false)
	record := w.awaitRecord("sb-a", v1alpha1.SandboxStopReasonFailed, "PodDeleted")
	if record.Pod != pods[0].Name || record.Team != "team" || record.ClusterId != "test" {
		t.Errorf("record %v", record)
	}
	w.awaitGone(&pods[0])
	w.awaitIdle("p", 2, 0)
}

// TestRecycle is I13 for a Pod that can be reset: another container, no trace of
// the tenant, and a record.
func TestRecycle(t *testing.T) {
	t.Parallel()
	w, pod := newIdlePod(t)
	w.Must(w.claim(&pod, "sb-a", "test.local/tenant:1", 0))
	running := w.awaitPhase(pod.Name, sandbox.Running)
	tenant := sandbox.ContainerID(running)
	if tenant == sandbox.ContainerID(&pod) || sandbox.Read(running).ContainerID != tenant {
		t.Errorf("running in %s, recorded %s", tenant, sandbox.Read(running).ContainerID)
	}
	w.release("p", pod.Name)
	idle := w.awaitPhase(pod.Name, sandbox.Idle)
	if idle.UID != pod.UID || sandbox.ContainerID(idle) == tenant || idle.Spec.Containers[0].Image != "test.local/idle:1" {
		t.Errorf("idle again: %s in %s with %s", idle.UID, sandbox.ContainerID(idle), idle.Spec.Containers[0].Image)
	}
	if state := sandbox.Read(idle); state.ID != "" || state.Team != "" || idle.Labels[v1alpha1.LabelTeam] != "" {
		t.Errorf("left of the tenant: %+v", state)
	}
	record := w.awaitRecord("sb-a", v1alpha1.SandboxStopReasonReleased, "")
	if record.Image != "test.local/tenant:1" || record.StartedAt == nil {
		t.Errorf("record %v", record)
	}
}

// TestResidueIsReplaced is I13 for Pods that a swap does not clean.
func TestResidueIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.makePool("volume", 1, func(p *v1alpha1.SandboxPool) {
		p.Spec.Template.Spec.Volumes = append(p.Spec.Template.Spec.Volumes,
			corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	})
	w.makePool("sidecar", 1, func(p *v1alpha1.SandboxPool) {
		p.Spec.Template.Spec.Containers = append(p.Spec.Template.Spec.Containers, corev1.Container{Name: "side", Image: "test.local/side:1"})
	})
	w.makePool("shared-memory", 1, func(p *v1alpha1.SandboxPool) { p.Spec.Template.Spec.Containers[0].VolumeMounts = nil })
	w.makePool("root", 1, func(p *v1alpha1.SandboxPool) { p.Spec.Template.Spec.SecurityContext.RunAsUser = nil })
	w.makePool("ipc", 1, func(p *v1alpha1.SandboxPool) { p.Spec.Template.Spec.SecurityContext.Sysctls = nil })
	w.makePool("same-image", 1)
	for pool, image := range map[string]string{
		"volume": "test.local/tenant:1", "sidecar": "test.local/tenant:1", "shared-memory": "test.local/tenant:1",
		"root": "test.local/tenant:1", "ipc": "test.local/tenant:1", "same-image": "test.local/idle:1",
	} {
		t.Run(pool, func(t *testing.T) {
			pod := w.awaitIdle(pool, 1, 0)[0]
			w.Must(w.claim(&pod, "sb-"+pool, image, 0))
			w.awaitPhase(pod.Name, sandbox.Running)
			w.release(pool, pod.Name)
			w.awaitGone(&pod)
			w.awaitRecord("sb-"+pool, v1alpha1.SandboxStopReasonReleased, "")
			if next := w.awaitIdle(pool, 1, 0)[0]; next.UID == pod.UID {
				t.Error("the same Pod is idle again")
			}
		})
	}
}

func TestSandboxesEndByThemselves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.makePool("p", 5)
	tests := []struct {
		id, image string
		startup   time.Duration
		stop      v1alpha1.SandboxStopReason
		failure   string
		exit      int32
		restart   string
	}{
		{id: "sb-exit0", image: "test.local/exit0:1", stop: v1alpha1.SandboxStopReasonCompleted},
		{id: "sb-crash", image: "test.local/crash:1", stop: v1alpha1.SandboxStopReasonFailed, failure: "Error", exit: 1},
		{id: "sb-restart", image: "test.local/idle:1", restart: "1:7", stop: v1alpha1.SandboxStopReasonFailed, failure: "Error", exit: 7},
		{id: "sb-pull", image: "test.local/fail-pull:1", stop: v1alpha1.SandboxStopReasonFailed, failure: "ImagePullBackOff"},
		{id: "sb-slow", image: "test.local/slow:1", startup: time.Second, stop: v1alpha1.SandboxStopReasonFailed, failure: "StartupTimeout"},
	}
	pods := w.awaitIdle("p", 5, 0)
	for i, tt := range tests {
		w.Must(w.claim(&pods[i], tt.id, tt.image, tt.startup))
		if tt.restart != "" {
			w.annotate(&pods[i], plane.RestartAnnotation, tt.restart)
		}
	}
	for i, tt := range tests {
		record := w.awaitRecord(tt.id, tt.stop, tt.failure)
		if got := record.GetExitCode(); got != tt.exit {
			t.Errorf("%s: exit code %d, want %d", tt.id, got, tt.exit)
		}
		if tt.stop != v1alpha1.SandboxStopReasonCompleted {
			w.awaitGone(&pods[i])
		}
	}
	w.awaitIdle("p", 5, 0)
}

func TestPoolDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pool := w.makePool("p", 3)
	pods := w.awaitIdle("p", 3, 0)
	w.Must(w.claim(&pods[0], "sb-a", "test.local/idle:1", 0))
	w.Must(w.Live.Delete(w.ctx, pool))
	w.awaitGone(&pods[1])
	w.awaitGone(&pods[2])
	w.Eventually("the phase", func() error {
		st := w.Pool("p").Status
		return wait.If(st.Phase == v1alpha1.SandboxPoolPhaseTerminating && st.RunningReplicas == 1 && st.IdleReplicas == 0, st)
	})
	if pod := w.pod(pods[0].Name); pod.DeletionTimestamp != nil {
		t.Fatal("a running sandbox was ended")
	}
	w.release("p", pods[0].Name)
	w.awaitRecord("sb-a", v1alpha1.SandboxStopReasonReleased, "")
	w.Eventually("the pool to go", func() error {
		err := w.Live.Get(w.ctx, w.Key("p"), pool)
		return wait.If(apierrors.IsNotFound(err), err)
	})
}

// TestPodsOutliveTheirPool: a pool is removed by force, finalizer included. Its sandboxes are recorded all the same.
func TestPodsOutliveTheirPool(t *testing.T) {
	w := newWorld(t)
	pool := w.makePool("p", 1)
	pod := w.awaitIdle("p", 1, 0)[0]
	w.Must(w.claim(&pod, "sb-a", "test.local/idle:1", 0))
	w.Must(w.Live.Delete(w.ctx, pool))
	w.Must(w.Live.Patch(w.ctx, pool, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.awaitRecord("sb-a", v1alpha1.SandboxStopReasonFailed, "PodDeleted")
	w.awaitGone(&pod)
}

func TestTemplateRollsOver(t *testing.T) {
	w, pods := newIdlePool(t, 5)
	w.Must(w.claim(&pods[0], "sb-a", "test.local/idle:1", 0))
	w.Must(w.Live.Patch(w.ctx, w.Pool("p"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"idleImage":"test.local/idle:2"}}`))))
	w.Eventually("idle pods of the new template", func() error {
		for _, pod := range w.pods("p", sandbox.Idle) {
			if pod.Spec.Containers[0].Image != "test.local/idle:2" {
				return fmt.Errorf("%s is old", pod.Name)
			}
		}
		return nil
	})
	w.awaitIdle("p", 4, 1)
	if pod := w.pod(pods[0].Name); pod.DeletionTimestamp != nil {
		t.Error("a running sandbox was ended")
	}
}

func (w *world) annotate(pod *corev1.Pod, key, value string) {
	w.t.Helper()
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	w.Must(w.Live.Patch(w.ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body))))
}

// makeEnv creates an Env whose group has the given window in seconds.
func (w *world) makeEnv(name string, window int32) {
	w.t.Helper()
	manifest := fmt.Sprintf(`{"spec":{"templateRef":{"name":"none"},"clusters":[{"clusterID":"test","members":[{"name":"p",`+
		`"config":{"scalingGroup":"default"}}]}],
		"autoscaling":{"groups":[{"name":"default","scaleDownPolicy":{"protectionWindowSeconds":%d}}]}}}`, window)
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	w.Must(w.Live.Patch(w.ctx, env, client.RawPatch(types.ApplyPatchType,
		[]byte(`{"apiVersion":"agents.navix.sh/v1alpha1","kind":"SandboxEnv","metadata":{"name":"`+name+`"},`+manifest[1:])),
		client.FieldOwner("test"), client.ForceOwnership))
}

func inGroup(env string) func(*v1alpha1.SandboxPool) {
	return func(p *v1alpha1.SandboxPool) {
		p.Labels = map[string]string{v1alpha1.LabelEnv: env, v1alpha1.LabelScalingGroup: "default"}
	}
}
