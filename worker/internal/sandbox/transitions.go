// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
)

// StartPatch changes starting to running. Call it when Observe returns Up.
func StartPatch(pod *corev1.Pod, now time.Time) []byte {
	p := newPatch(768)
	p.testSandbox(pod)
	p.testAlive()
	p.setPhase(Running)
	p.setTime(v1alpha1.SandboxStartedAtAnnotationKey, now)
	p.setAnnotation(v1alpha1.SandboxContainerIDAnnotationKey, ContainerID(pod))
	p.clear(pod, v1alpha1.SandboxStatusDetailAnnotationKey)
	return p.bytes()
}

// DetailPatch writes what a starting Pod waits for. Call it only when the reason has changed.
func DetailPatch(pod *corev1.Pod, detail v1alpha1.SandboxStatusDetail, now time.Time) ([]byte, error) {
	detail.Message, detail.LastUpdatedTime = clip.Text(detail.Message, maxMessage), formatTime(now)
	value, err := json.Marshal(detail)
	if err != nil {
		return nil, fmt.Errorf("encoding status detail: %w", err)
	}
	p := newPatch(768)
	p.testSandbox(pod)
	p.setAnnotation(v1alpha1.SandboxStatusDetailAnnotationKey, string(value))
	return p.bytes(), nil
}

// ReleasePatch changes starting or running to stopping. If the Pod may return to idle, the same write restores the idle image; otherwise
// the pool replaces the Pod.
//
// A sandbox that never ran ends as Canceled, whatever the caller passes.
func ReleasePatch(pod *corev1.Pod, pool *v1alpha1.SandboxPoolSpec, end End, now time.Time) []byte {
	return releasePatch(pod, pool, end, now, nil)
}

// ExpirePatch is ReleasePatch for a sandbox that has timed out. It loses to a write that changes a timeout, records activity or
// pauses the sandbox meanwhile.
func ExpirePatch(pod *corev1.Pod, pool *v1alpha1.SandboxPoolSpec, end End, now time.Time) []byte {
	return releasePatch(pod, pool, end, now, expiresBy)
}

// expiresBy are the annotations that decide whether a sandbox has timed out.
var expiresBy = []string{
	v1alpha1.SandboxIdleTimeoutAnnotationKey, v1alpha1.SandboxMaxLifetimeAnnotationKey,
	v1alpha1.SandboxFirstActivityTimeoutAnnotationKey, v1alpha1.SandboxLastActiveAnnotationKey,
	v1alpha1.SandboxPauseAnnotationKey,
}

func releasePatch(pod *corev1.Pod, pool *v1alpha1.SandboxPoolSpec, end End, now time.Time, unchanged []string) []byte {
	reset := Recyclable(pod, pool).Reset
	running, _ := json.Marshal(specImages(pod)) // never fails
	end = ReleasedAt(pod, end, now).End
	p := newPatch(2048)
	p.testSandbox(pod)
	for _, key := range unchanged {
		p.testAnnotation(pod, key)
	}
	if reset {
		// An image that another writer set must not be recorded as the tenant's.
		p.testImage(pod.Spec.Containers[0].Image)
	}
	p.setPhase(Stopping)
	p.setEnd(end, now)
	p.setAnnotation(v1alpha1.SandboxRunningImagesAnnotationKey, string(running))
	p.setAnnotation(v1alpha1.SandboxContainerIDAnnotationKey, ContainerID(pod))
	if reset {
		p.setImage(IdleImage(pool))
	}
	return p.bytes()
}

// BuryPatch removes the protection finalizer from a Pod that is being deleted. If released is given and the Pod shows no end, the patch
// also writes the end that the Pod was deleted for. It tests the finalizer's position, because other controllers may remove theirs at the
// same time.
func BuryPatch(pod *corev1.Pod, released *Termination) []byte {
	p := newPatch(512)
	p.testUID(pod)
	path := "/metadata/finalizers/" + strconv.Itoa(slices.Index(pod.Finalizers, v1alpha1.SandboxProtectionFinalizer))
	p.op("test", path, "", v1alpha1.SandboxProtectionFinalizer)
	p.buf = append(p.buf, `{"op":"remove","path":"`+path+`"},`...)
	if released != nil && !HasEnd(pod) && len(pod.Labels) > 0 && len(pod.Annotations) > 0 {
		p.setPhase(Stopping)
		p.setEnd(released.End, released.At)
	}
	return p.bytes()
}

// FailPatch changes any phase to failed. The record of the Pod's sandbox, if it has one, is built from the result.
func FailPatch(pod *corev1.Pod, end End, now time.Time) []byte {
	end.StopReason = v1alpha1.SandboxStopReasonFailed
	p := newPatch(1024)
	p.testSandbox(pod)
	p.setPhase(Failed)
	if !HasEnd(pod) {
		p.setEnd(end, now)
	}
	return p.bytes()
}

func (p *patch) setEnd(end End, now time.Time) {
	p.setAnnotation(v1alpha1.SandboxStopReasonAnnotationKey, string(end.StopReason))
	p.setTime(v1alpha1.SandboxTerminatedAtAnnotationKey, now)
	p.setText(v1alpha1.SandboxFailureReasonAnnotationKey, end.Reason)
	p.setText(v1alpha1.SandboxFailureMessageAnnotationKey, clip.Text(end.Message, maxMessage))
	if end.ExitCode != nil {
		p.setAnnotation(v1alpha1.SandboxExitCodeAnnotationKey, itoa(int64(*end.ExitCode)))
	}
}

// late are a tenant's annotations that can be written after the release, so that an older view of the Pod may lack them.
var late = []string{v1alpha1.SandboxLastActiveAnnotationKey, v1alpha1.SandboxStatusDetailAnnotationKey}

// tenantLabels returns the labels that a claim may have put on a Pod, even if their list was edited. Labels of the template stay.
func tenantLabels(pod *corev1.Pod, pool *v1alpha1.SandboxPoolSpec) []string {
	keys := managedLabels(pod)
	for key := range pod.Labels {
		_, kept := pool.Template.Labels[key]
		if strings.HasPrefix(key, v1alpha1.TenantLabelPrefix) && !kept && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// IdlePatch changes stopping to idle and removes the identity in the same write. Call it when ResetDone returns true and the record is
// stored. Tenant labels that the pool's template sets get the template's value.
func IdlePatch(pod *corev1.Pod, pool *v1alpha1.SandboxPoolSpec, now time.Time) []byte {
	p := newPatch(2048)
	p.testSandbox(pod)
	p.testAlive()
	p.testImage(IdleImage(pool))
	p.setPhase(Idle)
	for _, key := range []string{v1alpha1.SandboxIDLabelKey, v1alpha1.ClaimKeyHashLabelKey, v1alpha1.EgressLabelKey} {
		p.dropLabel(pod, key)
	}
	for _, key := range []string{v1alpha1.LabelTeam, v1alpha1.LabelUser} {
		if value, ok := pool.Template.Labels[key]; ok {
			p.setLabel(key, value)
		} else {
			p.dropLabel(pod, key)
		}
		p.setAnnotation(key, pool.Template.Annotations[key])
	}
	for _, key := range tenantLabels(pod, pool) {
		p.dropLabel(pod, key)
	}
	for _, key := range v1alpha1.TenantAnnotationKeys {
		if !slices.Contains(late, key) {
			p.clear(pod, key)
		}
	}
	for _, key := range late {
		p.setAnnotation(key, "")
	}
	for _, key := range splitKeys(pod.Annotations[v1alpha1.SandboxManagedAnnotationKeysAnnotationKey]) {
		p.clear(pod, key)
	}
	p.setTime(v1alpha1.SandboxIdleSinceAnnotationKey, now)
	return p.bytes()
}
