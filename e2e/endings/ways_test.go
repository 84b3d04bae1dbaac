// SPDX-License-Identifier: Apache-2.0

package endings_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// exits has a Pod's container end, as a kubelet reports it.
func exits(code int32, reason string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, ContainerID: s.ContainerStatuses[0].ContainerID, FinishedAt: metav1.Now(),
		}}
	}
}

// disrupted says why a Pod is about to be taken away.
func disrupted(reason, message string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Conditions = append(s.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
		})
	}
}

// The record distinguishes each way of ending.
func TestEveryWayOfEnding(t *testing.T) {
	ctx := t.Context()
	b := newLedger(t)
	none := int32(-1)
	for name, way := range map[string]struct {
		status       func(*corev1.PodStatus) // what is reported
		deleted      bool                    // and the Pod is deleted
		call         func(ctx context.Context, id string) error
		stop, reason string
		code         int32
	}{
		"exit 0":            {status: exits(0, "Completed"), stop: "Completed", code: 0},
		"exit 3":            {status: exits(3, "Error"), stop: "Failed", reason: "Error", code: 3},
		"killed for memory": {status: exits(137, "OOMKilled"), stop: "Failed", reason: "OOMKilled", code: 137},
		"deleted":           {deleted: true, stop: "Failed", reason: "PodDeleted", code: none},
		"evicted by the API": {status: disrupted("EvictionByEvictionAPI", "evicting"), deleted: true, stop: "Failed",
			reason: "EvictionByEvictionAPI", code: none},
		"its node was lost": {status: disrupted("DeletionByTaintManager", "the node does not answer"), deleted: true,
			stop: "Failed", reason: "DeletionByTaintManager", code: none},
		"preempted": {status: disrupted("PreemptionByScheduler", "for another"), deleted: true, stop: "Failed", reason: "PreemptionByScheduler",
			code: none},
		"evicted by its kubelet": {status: func(s *corev1.PodStatus) {
			exits(137, "Error")(s)
			s.Phase, s.Reason, s.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		}, stop: "Failed", reason: "Evicted", code: none},
		"released": {call: hub.Release, stop: "Released", code: none},
		"out of time": {call: func(ctx context.Context, id string) error {
			_, err := hub.UpdateSandbox(ctx, &sandboxv1.UpdateSandboxRequest{Id: id, MaxLifetime: durationpb.New(time.Second)})
			return err
		}, stop: "Released", reason: "MaxLifetime", code: none},
		"idle": {call: func(ctx context.Context, id string) error {
			_, err := hub.UpdateSandbox(ctx, &sandboxv1.UpdateSandboxRequest{Id: id, IdleTimeout: durationpb.New(time.Second)})
			return err
		}, stop: "Released", reason: "IdleTimeout", code: none},
	} {
		s := b.create(ctx)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.GetNamespace(), Name: s.GetPod()}}
		if way.status != nil {
			must.Succeed(t, kube.Get(ctx, client.ObjectKeyFromObject(pod), pod))
			way.status(&pod.Status)
			if err := kube.Status().Update(ctx, pod); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if way.deleted {
			if err := kube.Delete(ctx, pod); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if way.call != nil {
			if err := way.call(ctx, s.GetId()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		b.ends[s.GetId()] = way.stop
		var got *sandboxv1.Sandbox
		wait.For(b.t, patience, name, func(ctx context.Context) (err error) {
			got, err = hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: s.GetId()})
			return wait.If(err == nil && got.GetPhase() == sandboxv1.Phase_ENDED, fmt.Sprint(got, err))
		})
		code := none
		if got.ExitCode != nil {
			code = got.GetExitCode()
		}
		if got.GetStopReason() != way.stop || got.GetFailureReason() != way.reason || code != way.code {
			t.Errorf("%s: recorded as %s, %q with exit code %d, want %s, %q, %d", name, got.GetStopReason(), got.GetFailureReason(), code, way.stop,
				way.reason, way.code)
		}
		if way.stop == "Failed" && got.GetFailureMessage() == "" || got.GetContainerId() == "" || got.GetNode() == "" || got.GetCpu() != "10m" ||
			got.GetImages()["main"] != s.GetImage() || got.GetClaimedAt() == nil || got.GetStartedAt() == nil {
			t.Errorf("%s: the record lacks something: %v", name, got)
		}
	}
	b.check(ctx, "at the end")
}

// I6: when an Env is deleted, its sandboxes end on their own terms; then it is removed, with all records kept.
func TestADeletedEnvDrains(t *testing.T) {
	ctx := t.Context()
	b := newLedger(t)
	s := b.create(ctx)
	must.Succeed(t, kube.Delete(ctx, &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: b.env}}))
	wait.For(b.t, patience, "the idle Pods to go", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := kube.List(ctx, pods, client.MatchingLabels{v1alpha1.LabelEnv: b.env})
		return wait.If(err == nil && len(pods.Items) == 1, fmt.Sprint(len(pods.Items), " ", err))
	})
	if got, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: s.GetId()}); err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Errorf("I6: its sandbox is %v, %v", got, err)
	}
	b.end(ctx, s, 0)
	wait.For(b.t, patience, "the pool to go", func(ctx context.Context) error {
		err := kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: b.env}, &v1alpha1.SandboxPool{})
		return wait.If(apierrors.IsNotFound(err), err)
	})
	b.replicas = 0
	b.check(ctx, "without the Env")
}

// With the disks of all replicas full, Pods wait with their records; then all are kept, once, and no Pod is left.
func TestFullDisksLoseNothing(t *testing.T) {
	ctx := t.Context()
	b := newLedger(t)
	var live []*sandboxv1.Sandbox
	for range 4 {
		live = append(live, b.create(ctx))
	}
	var disks []stack.FullDisk
	for _, p := range []stack.Program{atoll.Worker(cluster), second} {
		disk, ok := p.(stack.FullDisk)
		if !ok {
			t.Fatal("this stack's disks cannot be filled")
		}
		disks = append(disks, disk)
	}
	limit := func(bytes int64) {
		for _, disk := range disks {
			must.Succeed(t, disk.LimitFiles(bytes))
		}
	}
	limit(0)
	defer limit(-1)
	for i, s := range live {
		b.end(ctx, s, i)
	}
	wait.For(b.t, patience, "the Pods to wait", func(ctx context.Context) error {
		for _, s := range live {
			pod := &corev1.Pod{}
			if err := kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: s.GetPod()}, pod); err != nil {
				t.Fatalf("a Pod went before its record was kept: %v", err)
			}
			if pod.DeletionTimestamp == nil {
				return fmt.Errorf("%s is not being deleted", pod.Name)
			}
		}
		return nil
	})
	during := b.create(ctx)
	limit(-1)
	b.end(ctx, during, 0)
	b.check(ctx, "with room again")
}
