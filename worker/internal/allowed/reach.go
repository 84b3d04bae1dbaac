// SPDX-License-Identifier: Apache-2.0

package allowed

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
)

// Container returns the container that a name stands for: the sandbox's own, also for "", or one that the lists allow. The error is
// FORBIDDEN and lists the allowed ones; it does not reveal whether another one exists.
func (l Lists) Container(asked, own string) (string, *problem.Error) {
	if asked == "" || asked == own {
		return own, nil
	}
	if slices.Contains(l.containers, asked) {
		return asked, nil
	}
	return "", problem.New(problem.Forbidden, "container: %q is not open to callers, want %s; %s",
		clip.Text(asked, 80), list(append([]string{own}, l.containers...)), l.others(v1alpha1.AllowedContainersAnnotationKey))
}

// Port rejects connections to the ports of a Pod on its node's network: they are the node's, including those of its loopback address.
func Port(pod *corev1.PodSpec) *problem.Error {
	if !pod.HostNetwork {
		return nil
	}
	return problem.New(problem.Forbidden,
		"the Pod is on its node's network, and its ports are the node's; a template without hostNetwork opens them")
}

// list names the first few, each once.
func list(names []string) string {
	var named []string
	for _, name := range names {
		if name != "" && !slices.Contains(named, name) {
			named = append(named, clip.Text(name, 200))
		}
	}
	return clip.Names(named, 20)
}
