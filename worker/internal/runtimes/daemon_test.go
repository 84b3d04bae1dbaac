// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"navix.sh/atoll/api/v1alpha1"
)

const daemonImage = "registry.example/atoll-sandboxd:v1"

// started prints how a Pod's first container starts, and what it has of the daemon.
func started(p *v1alpha1.SandboxPoolSpec, image string) string {
	pod := p.Template.Spec.DeepCopy()
	Render(p, pod, image)
	if len(pod.Containers) == 0 {
		return "no container"
	}
	c := pod.Containers[0]
	words := []string{strings.Join(append(append([]string{}, c.Command...), c.Args...), " ")}
	for _, init := range pod.InitContainers {
		words = append(words, fmt.Sprintf("init %s %s", init.Image, strings.Join(init.Command, " ")))
	}
	for _, m := range c.VolumeMounts {
		words = append(words, fmt.Sprintf("mount %s %s %t", m.Name, m.MountPath, m.ReadOnly))
	}
	if c.ReadinessProbe != nil {
		words = append(words, "probe")
	}
	return strings.Join(words, ", ")
}

func TestDelivery(t *testing.T) {
	e2b, withoutContainers := with(port("e2b", 49983)), &v1alpha1.SandboxPoolSpec{}
	withoutContainers.Runtimes = []spec{{Name: E2B}}
	command := func(words ...string) func(*v1alpha1.SandboxPoolSpec) {
		return func(p *v1alpha1.SandboxPoolSpec) { p.Template.Spec.Containers[0].Command = words }
	}
	args := func(words ...string) func(*v1alpha1.SandboxPoolSpec) {
		return func(p *v1alpha1.SandboxPoolSpec) { p.Template.Spec.Containers[0].Args = words }
	}
	brought := func(value string) func(*v1alpha1.SandboxPoolSpec) {
		return func(p *v1alpha1.SandboxPoolSpec) {
			p.Template.Annotations = map[string]string{v1alpha1.SandboxdAnnotationKey: value}
		}
	}
	const (
		start    = "/.atoll/atoll-sandboxd --init"
		received = ", init registry.example/atoll-sandboxd:v1 /atoll-sandboxd --install /.atoll, mount atoll-sandboxd /.atoll true"
	)
	for name, tc := range map[string]struct {
		pool  *v1alpha1.SandboxPoolSpec
		image string
		want  string
	}{
		"no command":                  {pool(e2b), daemonImage, start + received},
		"a command":                   {pool(e2b, command("python", "-m")), daemonImage, start + " -- python -m" + received},
		"a command and arguments":     {pool(e2b, command("sh"), args("-c", "x $(Y)")), daemonImage, start + " -- sh -c x $(Y)" + received},
		"no image of the daemon":      {pool(e2b), "", ", probe"},
		"another runtime":             {pool(with(port("web", 80))), daemonImage, ", probe"},
		"no runtime":                  {pool(), daemonImage, ""},
		"the image's, by annotation":  {pool(e2b, brought("image")), daemonImage, ", probe"},
		"an unknown annotation":       {pool(e2b, brought("x")), daemonImage, start + received},
		"the image's, by its command": {pool(e2b, command("/bin/atoll-sandboxd", "--")), daemonImage, "/bin/atoll-sandboxd --, probe"},
		"an unknown entrypoint":       {pool(e2b, args("--", "python")), daemonImage, "-- python, probe"},
		"the node's network": {pool(e2b, func(p *v1alpha1.SandboxPoolSpec) { p.Template.Spec.HostNetwork = true }),
			daemonImage, ", probe"},
		"another runtime's probe stays": {pool(with(port("e2b", 49983), port("web", 80))), daemonImage, start + received + ", probe"},
		"no containers":                 {withoutContainers, daemonImage, "no container"},
	} {
		if got := started(tc.pool, tc.image); got != tc.want {
			t.Errorf("%s:\n %s, want\n %s", name, got, tc.want)
		}
	}
	other := pool(with(port("e2b", 49983), port("web", 80)))
	pod := other.Template.Spec.DeepCopy()
	Render(other, pod, daemonImage)
	if probe := pod.Containers[0].ReadinessProbe; probe.TCPSocket.Port.IntValue() != 80 {
		t.Errorf("the kubelet probes %s, where nothing listens but at loopback", probe.TCPSocket.Port.String())
	}
}

// The Pod's quality of service and its requests stay, and the strictest Pod security standard takes the init container.
func TestTheDaemonTakesNothingMore(t *testing.T) {
	amounts := func(cpu, gpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), "example.org/gpu": resource.MustParse(gpu)}
	}
	p := pool(with(spec{Name: E2B}), func(p *v1alpha1.SandboxPoolSpec) {
		c := &p.Template.Spec.Containers[0]
		c.Resources = corev1.ResourceRequirements{Requests: amounts("1", "1"), Limits: amounts("2", "1")}
		p.Template.Spec.InitContainers = []corev1.Container{{Name: "own"}}
		p.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))}
	})
	before := p.DeepCopy()
	pod := p.Template.Spec.DeepCopy()
	Render(p, pod, daemonImage)
	if !equality.Semantic.DeepEqual(before, p) {
		t.Error("the pool was changed")
	}
	if len(pod.InitContainers) != 2 || pod.InitContainers[1].Name != "own" || len(pod.Containers) != 2 ||
		len(pod.Containers[1].VolumeMounts) != 0 {
		t.Fatalf("%+v", pod)
	}
	init := pod.InitContainers[0]
	cpu := func(quantity string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
	}
	if want := (corev1.ResourceRequirements{Requests: cpu("1"), Limits: cpu("2")}); !equality.Semantic.DeepEqual(init.Resources, want) {
		t.Errorf("it has %+v", init.Resources)
	}
	s := init.SecurityContext
	if *s.RunAsUser == 0 || !*s.RunAsNonRoot || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Capabilities.Drop[0] != "ALL" ||
		s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("it may do %+v", s)
	}
	bare := pool(with(spec{Name: E2B}))
	pod = bare.Template.Spec.DeepCopy()
	Render(bare, pod, daemonImage)
	if r := pod.InitContainers[0].Resources; r.Requests != nil || r.Limits != nil {
		t.Errorf("without resources it has %+v", r)
	}
}
