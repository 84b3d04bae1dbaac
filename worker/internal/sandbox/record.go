// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
)

// Record returns the sandbox on a Pod in the form of the public API: a live one as it is, one on a failed or deleted Pod as ended, and a
// stopping one as stopping. It returns nil for a Pod without a sandbox.
func Record(pod *corev1.Pod, runtimes []v1alpha1.SandboxRuntimeSpec, clusterID string) *sandboxv1.Sandbox {
	s := Read(pod)
	if s.ID == "" {
		return nil
	}
	image := s.RunningImage
	if image == "" && len(pod.Spec.Containers) > 0 {
		image = pod.Spec.Containers[0].Image
	}
	record := &sandboxv1.Sandbox{
		Id: s.ID, ClusterId: clusterID,
		Namespace: pod.Namespace, Env: s.Env, Pool: s.Pool.Name,
		Pod: pod.Name, PodUid: string(pod.UID), PodIp: pod.Status.PodIP,
		Runtimes: runtimesOf(pod, runtimes),
		Phase:    apiPhase(pod, s.Phase), Image: image,
		Team: s.Team, User: s.User,
		Labels:   userLabels(pod),
		Metadata: parseStringMap(pod.Annotations[v1alpha1.SandboxMetadataAnnotationKey]),
		ClaimKey: s.Key, EgressDenied: pod.Labels[v1alpha1.EgressLabelKey] == v1alpha1.EgressDenied,

		ClaimedAt: timestamp(s.ClaimedAt), StartedAt: timestamp(s.StartedAt), TerminatedAt: timestamp(s.TerminatedAt),
		StopReason:    string(s.End.StopReason),
		FailureReason: s.End.Reason, FailureMessage: s.End.Message, ExitCode: s.End.ExitCode,
		IdleTimeout: duration(s.Timeouts.Idle), StartupTimeout: duration(s.Timeouts.Startup),
		MaxLifetime: duration(s.Timeouts.MaxLifetime), FirstActivityTimeout: duration(s.Timeouts.FirstActivity),
		LastActiveAt: timestamp(s.LastActive), Pause: pauseOf(pod),

		Images: imagesOf(pod), ContainerId: containerOf(pod, &s), Node: pod.Spec.NodeName,
	}
	if class := pod.Spec.RuntimeClassName; class != nil {
		record.RuntimeClassName = *class
	}
	record.Cpu, record.Memory = resourcesOf(pod)
	if d := Diagnose(pod); d.Reason != "" {
		record.StatusDetail = &sandboxv1.StatusDetail{Reason: d.Reason, Message: d.Message}
	}
	return record
}

// TerminalRecord is Record for a sandbox that is over. The record always has an end: the one that the Pod shows, else released, for which
// its Pod was deleted, else that the Pod was deleted from outside. released is nil if it is unknown. now replaces a time that was not
// written.
func TerminalRecord(
	pod *corev1.Pod, runtimes []v1alpha1.SandboxRuntimeSpec, clusterID string, now time.Time, released *Termination,
) *sandboxv1.Sandbox {
	record := Record(pod, runtimes, clusterID)
	if record == nil {
		return nil
	}
	record.Phase, record.Pause, record.StatusDetail = sandboxv1.Phase_ENDED, nil, nil
	if record.StopReason == "" {
		if released == nil {
			released = &Termination{End: lostPod(pod)}
		}
		released.ShowIn(record)
	}
	if record.TerminatedAt == nil {
		record.TerminatedAt = timestamp(now)
	}
	return record
}

// lostPod returns the end of a sandbox whose Pod was deleted without a release. It ignores the container's exit code, because a container
// that handles the signal exits with 0 without having completed.
func lostPod(pod *corev1.Pod) End {
	why := disruption(pod)
	if Finished(pod) && (pod.Status.Reason != "" || why == nil && !endedByDeletion(pod)) {
		return podEnd(pod)
	}
	end := End{StopReason: v1alpha1.SandboxStopReasonFailed, Reason: "PodDeleted", Message: "the Pod was deleted"}
	if why != nil {
		end.Reason, end.Message = why.Reason, why.Message
	}
	if PhaseOf(pod) == Starting {
		end.StopReason = v1alpha1.SandboxStopReasonCanceled
		end.Message += " before the sandbox ran"
	}
	return end
}

// disruption returns the DisruptionTarget condition of a Pod that is being disrupted from outside, else nil.
func disruption(pod *corev1.Pod) *corev1.PodCondition {
	if c := trueCondition(pod, corev1.DisruptionTarget); c != nil && c.Reason != "" {
		return c
	}
	return nil
}

// endedByDeletion reports whether the container ended because the Pod was deleted. For a container that always restarts it ignores the
// time: when the kubelet has released the Pod, deletionTimestamp is that moment, and no longer the end of the grace period.
func endedByDeletion(pod *corev1.Pod) bool {
	cs := mainStatus(pod)
	if pod.DeletionTimestamp == nil || cs == nil || cs.State.Terminated == nil {
		return false
	}
	if restartsAlways(&pod.Spec) {
		return true
	}
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		grace = *own
	}
	asked := pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
	return !cs.State.Terminated.FinishedAt.Time.Before(asked)
}

// Termination is an end and its time.
type Termination struct {
	End
	At time.Time
}

// ReleasedAt returns the termination of a sandbox that is released now. A sandbox that never ran ends as Canceled, even if the caller
// passes Released.
func ReleasedAt(pod *corev1.Pod, end End, now time.Time) Termination {
	if PhaseOf(pod) == Starting && end.StopReason == v1alpha1.SandboxStopReasonReleased {
		end.StopReason = v1alpha1.SandboxStopReasonCanceled
	}
	return Termination{end, now}
}

// ShowIn writes the termination into a record.
func (t *Termination) ShowIn(record *sandboxv1.Sandbox) {
	record.StopReason, record.FailureReason = string(t.StopReason), t.Reason
	record.FailureMessage, record.ExitCode = clip.Text(t.Message, maxMessage), t.ExitCode
	if !t.At.IsZero() {
		record.TerminatedAt = timestamp(t.At)
	}
}

// HasEnd reports whether the Pod shows the end of its sandbox.
func HasEnd(pod *corev1.Pod) bool {
	return pod.Annotations[v1alpha1.SandboxStopReasonAnnotationKey] != ""
}

// IsProtected reports whether a deleted Pod stays until its finalizer is removed. The pool removes it when the sandbox has its record.
func IsProtected(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, v1alpha1.SandboxProtectionFinalizer)
}

func apiPhase(pod *corev1.Pod, phase Phase) sandboxv1.Phase {
	if pod.DeletionTimestamp != nil && phase.Live() {
		return sandboxv1.Phase_STOPPING
	}
	switch phase {
	case Starting:
		return sandboxv1.Phase_STARTING
	case Running:
		if Preparing(pod) {
			return sandboxv1.Phase_STARTING
		}
		return sandboxv1.Phase_RUNNING
	case Stopping:
		return sandboxv1.Phase_STOPPING
	case Failed, Idle:
		return sandboxv1.Phase_ENDED
	default:
		return sandboxv1.Phase_PHASE_UNSPECIFIED
	}
}

// userLabels returns the labels of the claim, under the caller's names. It is empty for a claim that predates the prefix.
func userLabels(pod *corev1.Pod) map[string]string {
	keys := managedLabels(pod)
	if len(keys) == 0 {
		return nil
	}
	labels := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, ok := pod.Labels[key]; ok {
			labels[strings.TrimPrefix(key, v1alpha1.TenantLabelPrefix)] = value
		}
	}
	return labels
}

// runtimesOf lists the pool's runtimes at the Pod's address.
func runtimesOf(pod *corev1.Pod, specs []v1alpha1.SandboxRuntimeSpec) []*sandboxv1.Runtime {
	runtimes := make([]*sandboxv1.Runtime, 0, len(specs))
	for i := range specs {
		r := &sandboxv1.Runtime{Name: specs[i].Name}
		if specs[i].Port != nil {
			r.Port = *specs[i].Port
			r.Url = runtimeURL(pod.Status.PodIP, r.Port, specs[i].Protocol)
		}
		runtimes = append(runtimes, r)
	}
	return runtimes
}

// runtimeURL returns the URL of a runtime. Its scheme is the transport protocol, because the application protocol depends on the runtime.
func runtimeURL(ip string, port int32, protocol *corev1.Protocol) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil || port <= 0 || port > 65535 {
		return ""
	}
	scheme := corev1.ProtocolTCP
	if protocol != nil {
		scheme = *protocol
	}
	return strings.ToLower(string(scheme)) + "://" + netip.AddrPortFrom(addr, uint16(port)).String()
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func duration(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}
