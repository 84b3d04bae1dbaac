// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// maxPortName is Kubernetes' limit.
const maxPortName = 15

// Render adds the ports and the probe of a pool's runtimes to a Pod from its template. It also adds the daemon of E2B from the image
// sandboxd, unless that is "".
func Render(pool *v1alpha1.SandboxPoolSpec, pod *corev1.PodSpec, sandboxd string) {
	if len(pod.Containers) == 0 {
		return
	}
	c := &pod.Containers[0]
	for i := range pool.Runtimes {
		addPort(c, &pool.Runtimes[i])
	}
	delivers := Delivers(pool, sandboxd)
	if i := probed(pool, delivers); i >= 0 {
		c.ReadinessProbe = probeOf(&pool.Runtimes[i])
	}
	if delivers {
		deliver(pod, sandboxd)
	}
}

func addPort(c *corev1.Container, r *v1alpha1.SandboxRuntimeSpec) {
	if r.Port == nil {
		return
	}
	port := corev1.ContainerPort{ContainerPort: *r.Port, Protocol: protocolOf(r)}
	for i := range c.Ports {
		have := c.Ports[i].Protocol
		if have == "" {
			have = corev1.ProtocolTCP
		}
		if c.Ports[i].ContainerPort == port.ContainerPort && have == port.Protocol {
			return
		}
	}
	for _, name := range []string{portName(r.Name), fmt.Sprintf("rt-%d", *r.Port),
		strings.ToLower(fmt.Sprintf("%s-%d", port.Protocol, *r.Port))} {
		taken := slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
		if !taken && len(validation.IsValidPortName(name)) == 0 {
			port.Name = name
			break
		}
	}
	c.Ports = append(c.Ports, port)
}

// portName converts a runtime's name to a port name: invalid characters become a hyphen.
func portName(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if s := b.String(); s != "" && !strings.HasSuffix(s, "-") {
			b.WriteByte('-')
		}
		if b.Len() == maxPortName {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}

func protocolOf(r *v1alpha1.SandboxRuntimeSpec) corev1.Protocol {
	if r.Protocol == nil || *r.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return *r.Protocol
}

// probed returns the index of the runtime whose readiness is the container's, or -1 if there is none. A delivered daemon has no probe of
// its own: it listens on loopback, where no kubelet connects, and serves as soon as its container runs.
func probed(pool *v1alpha1.SandboxPoolSpec, delivers bool) int {
	containers := pool.Template.Spec.Containers
	if len(containers) == 0 || containers[0].ReadinessProbe != nil || !sandbox.SameImage(sandbox.IdleImage(pool), sandbox.DefaultImage(pool)) {
		return -1
	}
	first := slices.IndexFunc(pool.Runtimes, func(r v1alpha1.SandboxRuntimeSpec) bool { return r.ReadinessProbe != nil && probeOf(&r) != nil })
	if first >= 0 {
		return first
	}
	return slices.IndexFunc(pool.Runtimes, func(r v1alpha1.SandboxRuntimeSpec) bool {
		return probeOf(&r) != nil && (!delivers || r.Name != E2B)
	})
}

// probeOf returns the probe for a runtime's readiness, or nil if there is none.
func probeOf(r *v1alpha1.SandboxRuntimeSpec) *corev1.Probe {
	connect := corev1.ProbeHandler{}
	if r.Port != nil && protocolOf(r) == corev1.ProtocolTCP {
		connect.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(*r.Port)}
	}
	if r.ReadinessProbe == nil {
		if connect.TCPSocket == nil {
			return nil
		}
		// The default period is 10 s, and a caller waits for it.
		return &corev1.Probe{ProbeHandler: connect, PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3}
	}
	probe := r.ReadinessProbe.DeepCopy()
	if probe.Exec == nil && probe.HTTPGet == nil && probe.TCPSocket == nil && probe.GRPC == nil {
		probe.ProbeHandler = connect
		if connect.TCPSocket == nil {
			return nil
		}
	}
	return probe
}
