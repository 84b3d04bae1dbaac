// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// limited is a member's config with CPU to give back.
const limited = "{requests: {cpu: 50m, memory: 8Mi}, limits: {cpu: 100m, memory: 64Mi}}"

// Pausing frees the container's CPU, as the kubelet reports it and as its cgroup has it, and nothing else; resuming gives it
// back, to the same process.
func TestPauseFreesCPU(t *testing.T) {
	ctx := testContext(t)
	e := newEnvOf(ctx, t, resets, "pause", 1, limited, closed)
	sandbox := e.mustClaim(ctx, t, tenantImage)
	before := who(ctx, t, resets, sandbox.GetPod())
	if quota, ok := cpuQuota(ctx, t, sandbox.GetPod()); ok && quota != 10*time.Millisecond {
		t.Errorf("before it may run for %s of each 100ms, want 10ms", quota)
	}

	began := time.Now()
	mustPause(ctx, t, sandbox)
	figures.add("pause", time.Since(began))
	pod := e.podOf(ctx, t, sandbox)
	if got := cpuOf(pod); got != "1m/10m" {
		t.Errorf("the kubelet reports %s, want 1m/10m", got)
	}
	if quota, ok := cpuQuota(ctx, t, sandbox.GetPod()); ok && quota != time.Millisecond {
		t.Errorf("paused it may run for %s of each 100ms, want 1ms", quota)
	}

	began = time.Now()
	mustResume(ctx, t, sandbox)
	figures.add("resume", time.Since(began))
	pod = e.podOf(ctx, t, sandbox)
	if got := cpuOf(pod); got != "50m/100m" {
		t.Errorf("the kubelet reports %s after the resume, want 50m/100m", got)
	}
	if quota, ok := cpuQuota(ctx, t, sandbox.GetPod()); ok && quota != 10*time.Millisecond {
		t.Errorf("resumed it may run for %s of each 100ms, want 10ms", quota)
	}
	after := who(ctx, t, resets, sandbox.GetPod())
	if after.Boot != before.Boot || after.PID != before.PID || string(pod.UID) != sandbox.GetPodUid() ||
		pod.Status.PodIP != sandbox.GetPodIp() {
		t.Errorf("before %+v at %s, after %+v at %s", before, sandbox.GetPodIp(), after, pod.Status.PodIP)
	}

	// What has all of its CPU again may be reset; what is paused may not.
	release(ctx, t, sandbox)
	if same := e.waitWarm(ctx, t)[0]; same.UID != pod.UID {
		t.Errorf("pod %s was replaced by %s, though it had been resumed", pod.UID, same.UID)
	}
	sandbox = e.mustClaim(ctx, t, tenantImage)
	mustPause(ctx, t, sandbox)
	release(ctx, t, sandbox)
	if other := e.waitWarm(ctx, t)[0]; other.UID == pod.UID || cpuOf(&other) != "50m/100m" {
		t.Errorf("pod %s went back to idle paused, with %s", other.UID, cpuOf(&other))
	}
}

// A node that has given the CPU to another Pod says Deferred, and gives it back by itself when that one has gone.
func TestResumeWaitsForRoom(t *testing.T) {
	ctx := testContext(t)
	// Either the sandbox or the other Pod has room, and both have not.
	most := freeCPU(ctx, t) * 6 / 10
	e := newEnvOf(ctx, t, resets, "room", 1, fmt.Sprintf("{requests: {cpu: %dm, memory: 8Mi}, limits: {cpu: %dm, memory: 64Mi}}", most, most))
	sandbox := e.mustClaim(ctx, t, idleImage)
	mustPause(ctx, t, sandbox)

	taker := barePod("taker")
	taker.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *quantity(strconv.FormatInt(most, 10) + "m")}
	must.Succeed(t, kube[resets].Create(ctx, taker))
	remove := sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := kube[resets].Delete(ctx, taker); err != nil {
			t.Errorf("deleting the Pod that took the CPU: %v", err)
		}
	})
	t.Cleanup(remove)
	wait.For(t, patience, "the Pod that takes the CPU", func(ctx context.Context) error {
		err := kube[resets].Get(ctx, types.NamespacedName{Namespace: namespace, Name: taker.Name}, taker)
		return wait.If(err == nil && taker.Status.Phase == corev1.PodRunning, fmt.Sprintf("%s, %v", taker.Status.Phase, err))
	})

	// It is answered with the reason, at once or, should the kubelet take longer to say so, a little later.
	if _, err := hub.ResumeSandbox(ctx, &sandboxv1.ResumeSandboxRequest{Id: sandbox.GetId()}); err != nil {
		t.Fatalf("resuming without room: %v", err)
	}
	e.waitPause(ctx, t, sandbox, func(p *sandboxv1.Pause) bool {
		return p.GetState() == sandboxv1.Pause_RESUMING && p.GetReason() == corev1.PodReasonDeferred
	})
	remove()
	e.waitPause(ctx, t, sandbox, func(p *sandboxv1.Pause) bool { return p == nil })
	if got, want := cpuOf(e.podOf(ctx, t, sandbox)), *quantity(strconv.FormatInt(most, 10) + "m"); got != want.String()+"/"+want.String() {
		t.Errorf("it has %s, want %s", got, want.String())
	}
	release(ctx, t, sandbox)
}

// A Pod without CPU to give back is not paused, and the sandbox stays as it is.
func TestPauseSaysWhyNot(t *testing.T) {
	ctx := testContext(t)
	e := newEnvOf(ctx, t, resets, "nocpu", 1, "{requests: {memory: 8Mi}, limits: {memory: 64Mi}}")
	sandbox := e.mustClaim(ctx, t, idleImage)
	_, err := hub.PauseSandbox(ctx, &sandboxv1.PauseSandboxRequest{Id: sandbox.GetId()})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "no CPU request or limit") {
		t.Errorf("a Pod without CPU requests: %v, want UNIMPLEMENTED with the reason", err)
	}
	if got, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()}); err != nil ||
		got.GetPhase() != sandboxv1.Phase_RUNNING || got.GetPause() != nil {
		t.Errorf("after that it is %v, %v", got, err)
	}
	release(ctx, t, sandbox)
}

// mustPause calls for a pause until it is there: a call answers after 8 s with what there is by then.
func mustPause(ctx context.Context, t *testing.T, sandbox *sandboxv1.Sandbox) {
	t.Helper()
	wait.For(t, patience, sandbox.GetId()+" to be paused", func(ctx context.Context) error {
		got, err := hub.PauseSandbox(ctx, &sandboxv1.PauseSandboxRequest{Id: sandbox.GetId()})
		return wait.If(err == nil && got.GetPause().GetState() == sandboxv1.Pause_PAUSED, fmt.Sprintf("%v, %v", got.GetPause(), err))
	})
}

func mustResume(ctx context.Context, t *testing.T, sandbox *sandboxv1.Sandbox) {
	t.Helper()
	wait.For(t, patience, sandbox.GetId()+" to be resumed", func(ctx context.Context) error {
		got, err := hub.ResumeSandbox(ctx, &sandboxv1.ResumeSandboxRequest{Id: sandbox.GetId()})
		return wait.If(err == nil && got.GetPause() == nil, fmt.Sprintf("%v, %v", got.GetPause(), err))
	})
}

func (e *env) waitPause(ctx context.Context, t *testing.T, sandbox *sandboxv1.Sandbox, wanted func(*sandboxv1.Pause) bool) {
	t.Helper()
	wait.For(t, patience, "the pause of "+sandbox.GetId(), func(ctx context.Context) error {
		got, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()})
		return wait.If(err == nil && wanted(got.GetPause()), fmt.Sprintf("%v, %v; %s", got.GetPause(), err, show(e.pods(ctx, t))))
	})
}

func (e *env) podOf(ctx context.Context, t *testing.T, sandbox *sandboxv1.Sandbox) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	must.Succeed(t, kube[e.cluster].Get(ctx, types.NamespacedName{Namespace: namespace, Name: sandbox.GetPod()}, pod))
	return pod
}

// cpuOf is what the kubelet reports: request/limit of the first container.
func cpuOf(pod *corev1.Pod) string {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].Resources == nil {
		return "nothing"
	}
	r := pod.Status.ContainerStatuses[0].Resources
	return r.Requests.Cpu().String() + "/" + r.Limits.Cpu().String()
}

// freeCPU is what no Pod has requested on the one node, in thousandths of a core.
func freeCPU(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	var all corev1.NodeList
	var pods corev1.PodList
	if err := errors.Join(kube[resets].List(ctx, &all), kube[resets].List(ctx, &pods)); err != nil || len(all.Items) != 1 {
		t.Fatalf("listing nodes and Pods: %d nodes, %v", len(all.Items), err)
	}
	free := all.Items[0].Status.Allocatable.Cpu().MilliValue()
	for i := range pods.Items {
		for _, c := range pods.Items[i].Spec.Containers {
			free -= c.Resources.Requests.Cpu().MilliValue()
		}
	}
	if free < 200 {
		t.Skipf("the node has %dm of CPU left, too little to take some of it away", free)
	}
	return free
}

// cpuQuota reads how long the container may run of each 100 ms, where its image can see that.
func cpuQuota(ctx context.Context, t *testing.T, pod string) (time.Duration, bool) {
	t.Helper()
	for _, path := range []string{"/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
		"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"} {
		text, err := ask(ctx, resets, pod, "/read", "path", path)
		if errors.Is(err, errNothing) {
			continue
		}
		if err != nil {
			t.Errorf("reading %s: %v", path, err)
			return 0, false
		}
		quota, period, _ := strings.Cut(strings.TrimSpace(text), " ")
		if period != "" && period != "100000" {
			t.Errorf("%s says %q, of another period than 100ms", path, text)
		}
		micros, err := strconv.Atoi(quota)
		if err != nil {
			t.Errorf("%s says %q: %v", path, text, err)
			return 0, false
		}
		return time.Duration(micros) * time.Microsecond, true
	}
	t.Log("the container cannot see its cgroup")
	return 0, false
}
