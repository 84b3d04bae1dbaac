// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
)

type spec = v1alpha1.SandboxRuntimeSpec

func pool(change ...func(*v1alpha1.SandboxPoolSpec)) *v1alpha1.SandboxPoolSpec {
	p := &v1alpha1.SandboxPoolSpec{}
	p.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "app:1"}, {Name: "side", Image: "side:1"}}
	for _, f := range change {
		f(p)
	}
	return p
}

func with(runtimes ...spec) func(*v1alpha1.SandboxPoolSpec) {
	return func(p *v1alpha1.SandboxPoolSpec) { p.Runtimes = runtimes }
}

func port(name string, n int32, change ...func(*spec)) spec {
	r := spec{Name: name, Port: &n}
	for _, f := range change {
		f(&r)
	}
	return r
}

func udp(r *spec) { r.Protocol = new(corev1.ProtocolUDP) }

func probe(p corev1.Probe) func(*spec) { return func(r *spec) { r.ReadinessProbe = &p } }

func get(path string, port intstr.IntOrString) corev1.Probe {
	return corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: port}}}
}

// describe prints what was rendered and what is left to check.
func describe(p *v1alpha1.SandboxPoolSpec) string {
	pod := p.Template.Spec.DeepCopy()
	Render(p, pod, "")
	var words []string
	for _, c := range pod.Containers {
		for _, port := range c.Ports {
			words = append(words, fmt.Sprintf("%s:%s:%d/%s", c.Name, port.Name, port.ContainerPort, port.Protocol))
		}
		if r := c.ReadinessProbe; r != nil {
			switch {
			case r.HTTPGet != nil:
				words = append(words, c.Name+" get "+r.HTTPGet.Path+" "+r.HTTPGet.Port.String())
			case r.TCPSocket != nil:
				words = append(words, fmt.Sprintf("%s connect %s every %d", c.Name, r.TCPSocket.Port.String(), r.PeriodSeconds))
			default:
				words = append(words, c.Name+" exec")
			}
		}
	}
	for _, c := range Checks(p) {
		switch {
		case c.HTTP != nil:
			words = append(words, fmt.Sprintf("check %s get %s %d", c.Runtime, c.HTTP.Path, c.HTTP.Port))
		case c.Exec != nil:
			words = append(words, "check "+c.Runtime+" exec")
		default:
			words = append(words, fmt.Sprintf("check %s connect %d", c.Runtime, c.TCP))
		}
	}
	return strings.Join(words, ", ")
}

func TestRender(t *testing.T) {
	otherIdle := func(p *v1alpha1.SandboxPoolSpec) { p.IdleImage = "pause:1" }
	sameIdle := func(p *v1alpha1.SandboxPoolSpec) { p.IdleImage = "docker.io/library/app:1" }
	own := func(p *v1alpha1.SandboxPoolSpec) {
		p.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}}
		p.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}
	}
	for name, tc := range map[string]struct {
		pool *v1alpha1.SandboxPoolSpec
		want string
	}{
		"none":           {pool(), ""},
		"without a port": {pool(with(spec{Name: "e2b"})), ""},
		"a port":         {pool(with(port("e2b", 49983))), "main:e2b:49983/TCP, main connect 49983 every 1"},
		"of UDP":         {pool(with(port("dns", 53, udp))), "main:dns:53/UDP"},
		"two ports": {pool(with(port("dns", 53, udp), port("a", 1), port("b", 2))),
			"main:dns:53/UDP, main:a:1/TCP, main:b:2/TCP, main connect 1 every 1"},
		"a probe goes first": {pool(with(port("a", 1), port("b", 2, probe(get("/ok", intstr.FromInt32(9)))))),
			"main:a:1/TCP, main:b:2/TCP, main get /ok 9"},
		"a second probe": {pool(with(port("a", 1, probe(get("/a", intstr.FromInt32(1)))),
			port("b", 2, probe(get("b", intstr.FromString("a")))))), "main:a:1/TCP, main:b:2/TCP, main get /a 1, check b get /b 1"},
		"a probe of no kind": {pool(with(port("a", 1, probe(corev1.Probe{PeriodSeconds: 7})))), "main:a:1/TCP, main connect 1 every 7"},
		"a probe of nothing": {pool(with(spec{Name: "a", ReadinessProbe: &corev1.Probe{}})), ""},
		"another idle image": {pool(with(port("a", 1), port("b", 2, probe(get("/b", intstr.FromInt32(2))))), otherIdle),
			"main:a:1/TCP, main:b:2/TCP, check b get /b 2"},
		"the same idle image": {pool(with(port("a", 1)), sameIdle), "main:a:1/TCP, main connect 1 every 1"},
		"the template's own": {pool(with(port("a", 80), port("b", 2,
			probe(corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 5}}}))), own),
			"main:web:80/, main:b:2/TCP, main exec, check b connect 5"},
		"names of another way": {pool(with(port("AIO Sandbox: the best of all", 1), port("49", 2), port("aio-sandbox-the-", 3), port("日本", 4))),
			"main:aio-sandbox-the:1/TCP, main:rt-2:2/TCP, main:rt-3:3/TCP, main:rt-4:4/TCP, main connect 1 every 1"},
		"a command to check": {pool(with(spec{Name: "a",
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ok"}}}}}), otherIdle),
			"check a exec"},
		"no containers": {&v1alpha1.SandboxPoolSpec{}, ""},
	} {
		if got := describe(tc.pool); got != tc.want {
			t.Errorf("%s:\n %s, want\n %s", name, got, tc.want)
		}
	}
}

func TestRenderLeavesThePoolAlone(t *testing.T) {
	p := pool(with(port("a", 1, probe(get("/a", intstr.FromInt32(1))))))
	before := p.DeepCopy()
	pod := p.Template.Spec.DeepCopy()
	Render(p, pod, "")
	pod.Containers[0].ReadinessProbe.HTTPGet.Path = "/changed"
	if !reflect.DeepEqual(before, p) || p.Runtimes[0].ReadinessProbe.HTTPGet.Path != "/a" {
		t.Error("rendering a Pod changed its pool")
	}
}

func TestLog(t *testing.T) {
	specs := []spec{{Name: "quiet"}, {Name: "e2b", LogDir: "/tmp/../tmp/envd.log"}, {Name: "rel", LogDir: "envd.log"}}
	got, err := Log("main", specs, "e2b")
	if err != nil || got != (LogFile{"main", "/tmp/envd.log"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if tail := strings.Join(got.Tail(100, true), " "); tail != "tail -n 100 -f -- /tmp/envd.log" {
		t.Error(tail)
	}
	if tail := strings.Join(got.Tail(-1, false), " "); tail != "tail -n +1 -- /tmp/envd.log" {
		t.Error(tail)
	}
	for name, want := range map[string]string{"quiet": "there are: e2b, rel", "": "there are: e2b, rel", "rel": "no absolute path"} {
		_, err := Log("main", specs, name)
		if e := problem.FromError(err); e == nil || e.Reason != problem.NotFound || !strings.Contains(e.Message, want) {
			t.Errorf("log of %q: %v, want %s", name, err, want)
		}
	}
}
