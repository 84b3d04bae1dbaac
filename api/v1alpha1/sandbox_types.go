// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// SandboxStopReason is how a sandbox ended.
type SandboxStopReason string

const (
	// SandboxStopReasonCompleted: its workload ended by itself, normally.
	SandboxStopReasonCompleted SandboxStopReason = "Completed"
	// SandboxStopReasonCanceled: it was stopped before it ever ran.
	SandboxStopReasonCanceled SandboxStopReason = "Canceled"
	// SandboxStopReasonReleased: a caller or its idle timeout released it.
	SandboxStopReasonReleased SandboxStopReason = "Released"
	// SandboxStopReasonFailed: its Pod failed (OOMKilled, Evicted, …).
	SandboxStopReasonFailed SandboxStopReason = "Failed"
)

// SandboxStatusDetail is the JSON value of SandboxStatusDetailAnnotationKey.
type SandboxStatusDetail struct {
	// Reason is the cause for machines: Pulling, ImagePullBackOff, ErrImagePull,
	// CrashLoopBackOff, OOMKilled, PodFailed, …
	Reason string `json:"reason"`
	// Message is the cause for people.
	Message string `json:"message"`
	// LastUpdatedTime is the RFC 3339 time at which this was written.
	LastUpdatedTime string `json:"lastUpdatedTime"`
}
