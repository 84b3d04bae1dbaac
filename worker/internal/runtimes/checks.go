// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/hook"
)

// Check is a readiness probe that the worker runs, because no kubelet does.
type Check struct {
	Runtime string
	Timeout time.Duration
	Exec    *hook.Exec
	HTTP    *hook.HTTP
	TCP     int32 // a port to connect to
}

// Checks returns the readiness probes of a pool's runtimes that its Pods do not have.
func Checks(pool *v1alpha1.SandboxPoolSpec) []Check {
	// Every claim calls this, and few pools have any.
	if !slices.ContainsFunc(pool.Runtimes, func(r v1alpha1.SandboxRuntimeSpec) bool { return r.ReadinessProbe != nil }) {
		return nil
	}
	var checks []Check
	const delivers = false // whatever is delivered: a runtime without a readinessProbe is not checked
	kubelets := probed(pool, delivers)
	for i := range pool.Runtimes {
		r := &pool.Runtimes[i]
		if i == kubelets || r.ReadinessProbe == nil {
			continue
		}
		if c, ok := checkOf(pool, r); ok {
			checks = append(checks, c)
		}
	}
	return checks
}

// checkOf returns a check that goes to the Pod, whatever host the probe names.
func checkOf(pool *v1alpha1.SandboxPoolSpec, r *v1alpha1.SandboxRuntimeSpec) (Check, bool) {
	probe := probeOf(r)
	if probe == nil {
		return Check{}, false
	}
	c := Check{Runtime: r.Name, Timeout: max(time.Second, time.Duration(probe.TimeoutSeconds)*time.Second)}
	switch {
	case probe.Exec != nil && len(probe.Exec.Command) > 0:
		c.Exec = &hook.Exec{Command: probe.Exec.Command}
	case probe.HTTPGet != nil:
		h := &hook.HTTP{Port: portOf(pool, r, probe.HTTPGet.Port), Path: probe.HTTPGet.Path, Scheme: string(probe.HTTPGet.Scheme)}
		if h.Path != "" && !strings.HasPrefix(h.Path, "/") {
			h.Path = "/" + h.Path
		}
		for _, header := range probe.HTTPGet.HTTPHeaders {
			if h.Headers == nil {
				h.Headers = map[string]hook.Value{}
			}
			h.Headers[header.Name] = hook.Value{Text: header.Value}
		}
		c.HTTP = h
		return c, h.Port > 0
	case probe.TCPSocket != nil:
		c.TCP = portOf(pool, r, probe.TCPSocket.Port)
		return c, c.TCP > 0
	case probe.GRPC != nil:
		c.TCP = probe.GRPC.Port
		return c, c.TCP > 0
	}
	return c, c.Exec != nil
}

// portOf returns a port by number or name. If no port has the name, it returns the runtime's own port.
func portOf(pool *v1alpha1.SandboxPoolSpec, r *v1alpha1.SandboxRuntimeSpec, port intstr.IntOrString) int32 {
	if port.Type == intstr.Int && port.IntVal > 0 {
		return port.IntVal
	}
	if containers := pool.Template.Spec.Containers; len(containers) > 0 && port.Type == intstr.String {
		named := corev1.Container{Ports: append([]corev1.ContainerPort(nil), containers[0].Ports...)}
		for i := range pool.Runtimes {
			addPort(&named, &pool.Runtimes[i])
		}
		for _, p := range named.Ports {
			if p.Name == port.StrVal {
				return p.ContainerPort
			}
		}
	}
	if r.Port != nil {
		return *r.Port
	}
	return 0
}
