// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/wait"
)

const (
	imageA = "registry.test:5000/agents/python:3.12"
	imageB = "registry.test:5000/agents/node:22"
)

func apply(ctx context.Context, t *testing.T, p *plane.Plane, namespace, manifest string) {
	t.Helper()
	_, err := p.KubectlInput(ctx, strings.NewReader(manifest), "apply", "-n", namespace, "-f", "-")
	must.Succeed(t, err)
}

func clientFrom(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must.Succeed(t, err)
	client, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	return client
}

// subject is a Pod under test.
type subject struct {
	t      *testing.T
	ctx    context.Context
	client *kubernetes.Clientset
	pod    *corev1.Pod
}

func newPod(images ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}}
	for i, image := range images {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: image})
	}
	return pod
}

func create(t *testing.T, pod *corev1.Pod) *subject {
	t.Helper()
	ctx := testContext(t)
	client := clientOf(t, planes.Plane("east"))
	namespace := newNamespace(ctx, t, client)
	pod, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	must.Succeed(t, err)
	return &subject{t: t, ctx: ctx, client: client, pod: pod}
}

// until waits until the Pod is as wanted, and returns it.
func (s *subject) until(what string, wanted func(*corev1.Pod) error) *corev1.Pod {
	s.t.Helper()
	var got *corev1.Pod
	wait.For(s.t, patience, what, func(context.Context) error {
		pod, err := s.client.CoreV1().Pods(s.pod.Namespace).Get(s.ctx, s.pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got = pod
		if err := wanted(pod); err != nil {
			status, _ := json.Marshal(pod.Status)
			return fmt.Errorf("%w: %s", err, status)
		}
		return nil
	})
	return got
}

func (s *subject) patch(patch string) {
	s.t.Helper()
	pods := s.client.CoreV1().Pods(s.pod.Namespace)
	_, err := pods.Patch(s.ctx, s.pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	must.Succeed(s.t, err)
}

func (s *subject) swap(image string) {
	s.t.Helper()
	s.patch(fmt.Sprintf(`{"spec":{"containers":[{"name":"c0","image":%q}]}}`, image))
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func ready(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning || condition(pod, corev1.PodReady).Status != corev1.ConditionTrue {
		return errors.New("not running and ready")
	}
	return nil
}

// waiting tells whether the first container waits for that reason.
func waiting(reason string) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Waiting != nil && c.State.Waiting.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no container is waiting for %s", reason)
	}
}

func restarted(times int32) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		if err := ready(pod); err != nil {
			return err
		}
		if got := pod.Status.ContainerStatuses[0].RestartCount; got < times {
			return fmt.Errorf("restarted %d times", got)
		}
		return nil
	}
}

func phase(want corev1.PodPhase) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		if pod.Status.Phase != want {
			return fmt.Errorf("phase is not %s", want)
		}
		return nil
	}
}

func TestPodBecomesReady(t *testing.T) {
	t.Parallel()
	pod := newPod(imageA, imageB)
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "init", Image: imageA},
		{Name: "sidecar", Image: imageA, RestartPolicy: &always},
	}
	got := create(t, pod).until("ready", ready)

	if got.Status.PodIP == "" || got.Status.HostIP == "" || got.Status.StartTime == nil {
		t.Errorf("addresses or start time are missing: %+v", got.Status)
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodScheduled} {
		if condition(got, kind).Status != corev1.ConditionTrue {
			t.Errorf("condition %s is not true", kind)
		}
	}
	if s := got.Status.InitContainerStatuses; len(s) != 2 || s[0].State.Terminated == nil || s[1].State.Running == nil {
		t.Errorf("init containers: %+v", s)
	}
	ids := map[string]bool{}
	for i, c := range got.Status.ContainerStatuses {
		ids[c.ContainerID] = true
		if c.Image != pod.Spec.Containers[i].Image || !c.Ready || c.Started == nil || !*c.Started || c.RestartCount != 0 {
			t.Errorf("container %d: %+v", i, c)
		}
		if !strings.HasPrefix(c.ContainerID, "containerd://") || len(c.ContainerID) != len("containerd://")+64 {
			t.Errorf("container %d has ID %q", i, c.ContainerID)
		}
	}
	if len(ids) != 2 {
		t.Error("containers share an ID")
	}
	if id := got.Status.ContainerStatuses[0].ImageID; !strings.HasPrefix(id, "registry.test:5000/agents/python@sha256:") {
		t.Errorf("image ID is %q", id)
	}
}

func TestImageSwapRestartsOneContainer(t *testing.T) {
	t.Parallel()
	s := create(t, newPod(imageA, imageA))
	before := s.until("ready", ready).Status.ContainerStatuses
	s.swap(imageB)
	during := s.until("stopped", func(pod *corev1.Pod) error {
		return wait.If(pod.Status.ContainerStatuses[0].State.Terminated != nil, "not terminated")
	})
	if during.Status.Phase != corev1.PodRunning || condition(during, corev1.PodReady).Status != corev1.ConditionFalse {
		t.Errorf("during the swap: phase %s, ready %s", during.Status.Phase, condition(during, corev1.PodReady).Status)
	}
	after := s.until("ready again", restarted(1)).Status.ContainerStatuses
	if after[0].Image != imageB || after[0].ImageID == before[0].ImageID || after[0].ContainerID == before[0].ContainerID {
		t.Errorf("after the swap: %+v", after[0])
	}
	if last := after[0].LastTerminationState.Terminated; last == nil || last.ContainerID != before[0].ContainerID {
		t.Errorf("last state does not tell of the first container: %+v", last)
	}
	if after[1].ContainerID != before[1].ContainerID || after[1].RestartCount != 0 {
		t.Errorf("the other container was touched: %+v", after[1])
	}

	// And back: the same image, but never the same container.
	s.swap(imageA)
	again := s.until("ready a third time", restarted(2)).Status.ContainerStatuses[0]
	if again.ImageID != before[0].ImageID || again.ContainerID == before[0].ContainerID {
		t.Errorf("after swapping back: %+v", again)
	}
}

// Kubelets do not always tell of the container that was stopped: sooner or later the last state is an earlier one's.
func TestASwapCanKeepTheLastStateOfAnEarlierContainer(t *testing.T) {
	t.Parallel()
	s := create(t, newPod(imageA))
	before := s.until("ready", ready).Status.ContainerStatuses[0]
	for swaps := int32(1); ; swaps++ {
		s.swap([]string{imageA, imageB}[swaps%2])
		after := s.until("swapped", restarted(swaps)).Status.ContainerStatuses[0]
		if last := after.LastTerminationState.Terminated; last == nil {
			t.Fatalf("swap %d: no last state", swaps)
		} else if last.ContainerID != before.ContainerID {
			return
		}
		before = after
	}
}

func TestImageThatCannotBePulled(t *testing.T) {
	t.Parallel()
	s := create(t, newPod("registry.test/fail-pull:1"))
	s.until("pull error", waiting("ErrImagePull"))
	got := s.until("pull back-off", waiting("ImagePullBackOff"))
	if got.Status.Phase != corev1.PodPending {
		t.Errorf("phase is %s", got.Status.Phase)
	}
	s.swap(imageA)
	s.until("recovery", ready)

	s.swap("registry.test/fail-pull:2")
	got = s.until("pull back-off after a swap", waiting("ImagePullBackOff"))
	if c := got.Status.ContainerStatuses[0]; got.Status.Phase != corev1.PodRunning || c.Image != imageA ||
		c.LastTerminationState.Terminated == nil {
		t.Errorf("phase %s, container %+v", got.Status.Phase, c)
	}
}

func TestContainerThatCrashes(t *testing.T) {
	t.Parallel()
	s := create(t, newPod("registry.test/crash:1"))
	first := s.until("ready", ready).Status.ContainerStatuses[0].ContainerID
	got := s.until("back-off", waiting("CrashLoopBackOff"))
	last := got.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != 1 || last.Reason != "Error" || last.ContainerID != first {
		t.Errorf("last state: %+v", last)
	}
	s.until("second restart", restarted(2))
}

func TestContainerThatExitsWithZero(t *testing.T) {
	t.Parallel()
	for policy, want := range map[corev1.RestartPolicy]func(*corev1.Pod) error{
		corev1.RestartPolicyNever:     phase(corev1.PodSucceeded),
		corev1.RestartPolicyOnFailure: phase(corev1.PodSucceeded),
		corev1.RestartPolicyAlways:    restarted(1),
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			pod := newPod("registry.test/exit0:1")
			pod.Spec.RestartPolicy = policy
			got := create(t, pod).until("end", want).Status.ContainerStatuses[0]
			ended := got.State.Terminated
			if policy == corev1.RestartPolicyAlways {
				ended = got.LastTerminationState.Terminated
			}
			if ended == nil || ended.ExitCode != 0 || ended.Reason != "Completed" {
				t.Errorf("container: %+v", got)
			}
		})
	}
}

func TestRestartOnDemand(t *testing.T) {
	t.Parallel()
	s := create(t, newPod(imageA))
	before := s.until("ready", ready).Status.ContainerStatuses[0]
	for i, request := range []struct {
		value string
		code  int32
	}{{"1", 1}, {"2:0", 0}, {"3:137", 137}} {
		s.patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, plane.RestartAnnotation, request.value))
		after := s.until("restart "+request.value, restarted(int32(i+1))).Status.ContainerStatuses[0]
		last := after.LastTerminationState.Terminated
		if after.ContainerID == before.ContainerID || after.Image != imageA || last == nil || last.ExitCode != request.code {
			t.Errorf("request %s: %+v", request.value, after)
		}
		before = after
	}

	never := newPod(imageA)
	never.Spec.RestartPolicy = corev1.RestartPolicyNever
	s = create(t, never)
	s.until("ready", ready)
	s.patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:"1"}}}`, plane.RestartAnnotation))
	s.until("failure", phase(corev1.PodFailed))
}

func TestDeletedPodStaysForItsFinalizer(t *testing.T) {
	t.Parallel()
	const finalizer = "agentbox.navix.sh/sandbox-protection"
	pod := newPod(imageA)
	pod.Finalizers = []string{finalizer}
	s := create(t, pod)
	s.until("ready", ready)
	pods := s.client.CoreV1().Pods(s.pod.Namespace)
	must.Succeed(t, pods.Delete(s.ctx, s.pod.Name, metav1.DeleteOptions{}))
	got := s.until("the kubelet's last word", func(pod *corev1.Pod) error {
		grace := pod.DeletionGracePeriodSeconds
		return wait.If(grace != nil && *grace == 0, "the kubelet has not deleted it")
	})
	if c := got.Status.ContainerStatuses[0]; got.Status.Phase != corev1.PodFailed || c.State.Terminated == nil {
		t.Errorf("phase %s, container %+v", got.Status.Phase, c)
	}
	if len(got.Finalizers) != 1 || got.Finalizers[0] != finalizer {
		t.Errorf("finalizers are %v", got.Finalizers)
	}
	s.patch(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + finalizer + `"]}}`)
	s.untilGone()

	s = create(t, newPod(imageA))
	s.until("ready", ready)
	must.Succeed(t, s.client.CoreV1().Pods(s.pod.Namespace).Delete(s.ctx, s.pod.Name, metav1.DeleteOptions{}))
	s.untilGone()
}

func (s *subject) untilGone() {
	s.t.Helper()
	wait.For(s.t, patience, "the pod to be gone", func(context.Context) error {
		_, err := s.client.CoreV1().Pods(s.pod.Namespace).Get(s.ctx, s.pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %w", err)
	})
}

// resize changes the CPU of the first container in place.
func (s *subject) resize(cpu string) error {
	body := fmt.Sprintf(`{"spec":{"containers":[{"name":"c0","resources":{"requests":{"cpu":%q},"limits":{"cpu":%q}}}]}}`, cpu, cpu)
	_, err := s.client.CoreV1().Pods(s.pod.Namespace).Patch(s.ctx, s.pod.Name, types.StrategicMergePatchType, []byte(body),
		metav1.PatchOptions{}, "resize")
	return err
}

func (s *subject) has(cpu, pending string) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		got := pod.Status.ContainerStatuses[0].Resources
		reason := ""
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodResizePending {
				reason = c.Reason + "/" + c.Message
			}
		}
		if got == nil || got.Limits.Cpu().String() != cpu || got.Requests.Cpu().String() != cpu || reason != pending ||
			pod.Status.ObservedGeneration != pod.Generation {
			return fmt.Errorf("has %v and %q at generation %d of %d, want %s and %q", got, reason, pod.Status.ObservedGeneration, pod.Generation,
				cpu, pending)
		}
		return nil
	}
}

func TestResizeInPlace(t *testing.T) {
	t.Parallel()
	pod := newPod(imageA, imageB)
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	s := create(t, pod)
	before := s.until("ready", ready).Status.ContainerStatuses[0].ContainerID
	s.until("resources", s.has("500m", ""))
	must.Succeed(t, s.resize("10m"))
	s.until("the floor", s.has("10m", ""))
	for _, reason := range []string{"Deferred", "Infeasible"} {
		s.patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:"%s:no room"}}}`, plane.ResizeAnnotation, reason))
		must.Succeed(t, s.resize("1"))
		s.until(reason, s.has("10m", reason+"/no room"))
	}
	s.patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, plane.ResizeAnnotation))
	if after := s.until("the resize", s.has("1", "")); after.Status.ContainerStatuses[0].ContainerID != before {
		t.Error("the container was restarted")
	}
}

func TestANodeThatCannotResize(t *testing.T) {
	t.Parallel()
	pod := newPod("registry.test/no-resize:1")
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	s := create(t, pod)
	s.until("ready", ready)
	if err := s.resize("10m"); !apierrors.IsInvalid(err) {
		t.Errorf("a resize is answered %v, want Invalid", err)
	}
}
