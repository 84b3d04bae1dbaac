// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/worker/internal/runtimes"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	defaultTimeout = 10 * time.Second
	defaultRetries = 5
	// forever is the number of retries of a check. The startup timeout ends it.
	forever = -1
)

// Job has the steps to carry out in one container of one Pod.
type Job struct {
	Pool    types.NamespacedName
	Pod     types.NamespacedName
	UID     types.UID
	Sandbox string
	// Container is the id of the sandbox's container.
	Container string
	// Main is the name of the Pod's first container.
	Main  string
	Steps []Step
	// Invalid is the error of parsing the Pod's hooks. Another writer must have written them, because a claim's hooks are checked.
	Invalid error
}

// Step is one hook or check.
type Step struct {
	Title   string // prefix of messages
	Timeout time.Duration
	Retries int
	Exec    *hook.Exec
	HTTP    *hook.HTTP
	TCP     int32
}

// JobOf returns the job that a Pod's sandbox needs before it runs, given the Pod and its pool. It returns false if it needs none.
func JobOf(pod *corev1.Pod, pool *v1alpha1.SandboxPoolSpec) (Job, bool) {
	state := sandbox.Read(pod)
	if state.Phase != sandbox.Starting || len(pod.Spec.Containers) == 0 {
		return Job{}, false
	}
	job := Job{
		Pool: state.Pool, Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID,
		Sandbox: state.ID, Container: sandbox.ContainerID(pod), Main: pod.Spec.Containers[0].Name,
	}
	for _, c := range runtimes.Checks(pool) {
		job.Steps = append(job.Steps, Step{
			Title: fmt.Sprintf("readiness of runtime %q", c.Runtime), Timeout: c.Timeout, Retries: forever, Exec: c.Exec, HTTP: c.HTTP, TCP: c.TCP,
		})
	}
	actions, err := hook.Decode(state.Hooks)
	if err != nil {
		job.Invalid = err
		return job, true
	}
	for i := range actions {
		a := &actions[i]
		step := Step{Title: a.Title(i), Timeout: defaultTimeout, Retries: defaultRetries, Exec: a.Exec, HTTP: a.HTTP}
		if a.Timeout != nil {
			step.Timeout = a.Timeout.Duration
		}
		if a.Retries != nil {
			step.Retries = int(*a.Retries)
		}
		job.Steps = append(job.Steps, step)
	}
	return job, len(job.Steps) > 0
}
