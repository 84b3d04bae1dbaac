// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/e2e/must"
)

// A claim with an image, and the release, each replace the process in the same Pod.
func TestSwapReplacesTheProcess(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, resets, "swap", 1, closed)
	pod := e.waitWarm(ctx, t)[0]
	idle := who(ctx, t, resets, pod.Name)

	sandbox := e.mustClaim(ctx, t, tenantImage)
	tenant := who(ctx, t, resets, pod.Name)
	if sandbox.GetPodUid() != string(pod.UID) || tenant.Hostname != pod.Name {
		t.Errorf("the sandbox is in Pod %s, its process in %s, want both in %s", sandbox.GetPodUid(), tenant.Hostname, pod.UID)
	}
	if idle.Tag != idleImage || tenant.Tag != tenantImage || idle.Boot == tenant.Boot || tenant.PID != 1 {
		t.Errorf("before %+v, after %+v", idle, tenant)
	}

	release(ctx, t, sandbox)
	after := e.waitWarm(ctx, t)[0]
	if after.UID != pod.UID {
		t.Fatalf("pod %s was replaced by %s", pod.UID, after.UID)
	}
	if again := who(ctx, t, resets, pod.Name); again.Tag != idleImage || again.Boot == idle.Boot || again.PID != 1 {
		t.Errorf("first %+v, after the reset %+v", idle, again)
	}
}

// A claim with another image, beside a patch of such a Pod by hand and a watch for the new container, in turn. Both wait for the same
// kubelet. It has no limits.
func TestSwapBesideOneByHand(t *testing.T) {
	const pairs = 10
	ctx := testContext(t)
	e := newEnv(ctx, t, resets, "beside", pairs, closed)
	for i, warm := range e.waitWarm(ctx, t) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("by-hand-%d", i)},
			Spec:       warm.Spec,
		}
		pod.Spec.NodeName = ""
		createByHand(ctx, t, resets, pod)
		runsByHand(ctx, t, resets, pod, idleImage)
		both := []func(){
			func() {
				begin := time.Now()
				e.mustClaim(ctx, t, tenantImage)
				figures.add("claim with swap, beside one by hand", time.Since(begin))
			},
			func() { figures.add("patch and watch by hand", patchAndWatch(ctx, t, pod, tenantImage)) },
		}
		both[i%2]()
		both[1-i%2]()
	}
}

// patchAndWatch is how long a Pod takes from the patch of its image until a watch shows the new container ready.
func patchAndWatch(ctx context.Context, t *testing.T, pod *corev1.Pod, image string) time.Duration {
	t.Helper()
	watcher, err := kube[resets].Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": pod.Name})
	must.Succeed(t, err)
	defer watcher.Stop()
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, image)
	begin := time.Now()
	must.Succeed(t, kube[resets].Patch(ctx, pod, client.RawPatch(types.JSONPatchType, patch)))
	for event := range watcher.ResultChan() {
		now, ok := event.Object.(*corev1.Pod)
		if !ok || len(now.Status.ContainerStatuses) != 1 {
			continue
		}
		if s := now.Status.ContainerStatuses[0]; s.Image == image && s.Ready && now.Spec.Containers[0].Image == image {
			return time.Since(begin)
		}
	}
	t.Fatalf("the watch of %s ended", pod.Name)
	return 0
}
