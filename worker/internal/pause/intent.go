// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"navix.sh/atoll/api/v1alpha1"
)

// Target is the requested state of a sandbox.
type Target string

// The targets.
const (
	Paused  Target = "Paused"
	Running Target = "Running"
)

// Intent is the annotation of a sandbox that is paused, pausing or resuming. A sandbox with all of its CPU has none.
type Intent struct {
	Target Target `json:"target"`
	// Since is when that was requested, by the API server's clock.
	Since string `json:"since,omitempty"`
	// Containers are the containers that free CPU, with their former CPU.
	Containers map[string]CPU `json:"containers"`
}

// CPU is the CPU of a container. A nil field is not set.
type CPU struct {
	Request *resource.Quantity `json:"request,omitempty"`
	Limit   *resource.Quantity `json:"limit,omitempty"`
}

// Marked reports whether a Pod carries an intent, so that it may not have all of its CPU.
func Marked(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.SandboxPauseAnnotationKey] != "" }

// Read returns the intent of a Pod, or nil if there is none or it cannot be parsed.
func Read(pod *corev1.Pod) *Intent {
	value := pod.Annotations[v1alpha1.SandboxPauseAnnotationKey]
	if value == "" {
		return nil
	}
	i := &Intent{}
	if err := json.Unmarshal([]byte(value), i); err != nil || i.Target != Paused && i.Target != Running {
		return nil
	}
	return i
}

// Encode returns the annotation, or "" for nil.
func (i *Intent) Encode() (string, error) {
	if i == nil {
		return "", nil
	}
	value, err := json.Marshal(i)
	if err != nil {
		return "", fmt.Errorf("encoding the intent to pause: %w", err)
	}
	return string(value), nil
}

// Time returns Since as a time, or zero if it is not set.
func (i *Intent) Time() time.Time {
	t, err := time.Parse(time.RFC3339, i.Since)
	if err != nil {
		return time.Time{}
	}
	return t
}

// turned returns the intent with another target.
func (i *Intent) turned(to Target, now time.Time) *Intent {
	return &Intent{Target: to, Since: now.UTC().Format(time.RFC3339), Containers: i.Containers}
}

// goal returns the CPU that a container of the intent must have.
func (i *Intent) goal(container string) (CPU, bool) {
	had, ok := i.Containers[container]
	if i.Target == Paused {
		return had.floor(), ok
	}
	return had, ok
}
