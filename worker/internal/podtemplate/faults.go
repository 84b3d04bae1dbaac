// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
)

const (
	// mostFaults bounds a message. With so many faults, the cause is not a single field.
	mostFaults = 8
	// LongestMessage is well below the API server's limit for a condition's message.
	LongestMessage = 1024
)

// Check rejects a pool's spec, given as a document, from which no Pod could be created: a frozen one would stay faulty after the template
// was repaired.
func Check(spec map[string]any) error {
	if err := Readable(spec); err != nil {
		return err
	}
	if faults := Faults(spec); len(faults) > 0 {
		return errors.New(Sentence(faults))
	}
	return nil
}

// Readable rejects a pool's spec that informers cannot decode. The schema does not validate Pod templates, and one stored pool like that
// would break the list of all pools in the cluster.
func Readable(spec map[string]any) error {
	content, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encoding the pool's spec: %w", err)
	}
	if err := json.Unmarshal(content, &v1alpha1.SandboxPoolSpec{}); err != nil {
		return fmt.Errorf("spec is not what a pool can be made of: %w", err)
	}
	return nil
}

// Faults returns why no Pod could be created from the spec of a template or a pool, given as a document. It returns none if one could. Only
// the API server knows whether it accepts the Pod, and only a kubelet whether it can pull the images.
func Faults(spec map[string]any) []error {
	content, err := json.Marshal(spec)
	if err != nil {
		return []error{fmt.Errorf("spec cannot be encoded: %w", err)}
	}
	var read v1alpha1.EmbeddedSandboxTemplate
	if err := json.Unmarshal(content, &read); err != nil {
		return []error{fmt.Errorf("spec.template is no Pod template: %w", err)}
	}
	faults := append(podFaults(&read.Template.Spec), runtimeFaults(read.Runtimes)...)
	if len(faults) > mostFaults {
		faults = append(faults[:mostFaults], fmt.Errorf("and %d more", len(faults)-mostFaults))
	}
	return faults
}

func podFaults(pod *corev1.PodSpec) []error {
	if len(pod.Containers) == 0 {
		return []error{errors.New("spec.template.spec.containers is empty; valid: at least one container")}
	}
	var faults []error
	seen := map[string]bool{}
	for _, list := range []struct {
		field      string
		containers []corev1.Container
	}{{"initContainers", pod.InitContainers}, {"containers", pod.Containers}} {
		for i := range list.containers {
			c := &list.containers[i]
			at := fmt.Sprintf("spec.template.spec.%s[%d]", list.field, i)
			if len(validation.IsDNS1123Label(c.Name)) > 0 {
				faults = append(faults, fmt.Errorf("%s.name is %q; valid: a DNS label such as main", at, c.Name))
			} else if seen[c.Name] {
				faults = append(faults, fmt.Errorf("%s.name: there are two containers of the name %s", at, c.Name))
			}
			seen[c.Name] = true
			if c.Image == "" {
				faults = append(faults, fmt.Errorf("%s.image is empty; valid: the name of an image", at))
			}
			faults = append(faults, ResourceFaults(at+".resources", &c.Resources)...)
		}
	}
	return faults
}

// ResourceFaults returns what is wrong with the resources of a container.
func ResourceFaults(at string, resources *corev1.ResourceRequirements) []error {
	var faults []error
	negative := func(field string, list corev1.ResourceList) {
		for _, name := range slices.Sorted(maps.Keys(list)) { // in a fixed order, because a different message is a write
			if quantity := list[name]; quantity.Sign() < 0 {
				faults = append(faults, fmt.Errorf("%s.%s.%s is %s; valid: 0 or more", at, field, name, quantity.String()))
			}
		}
	}
	negative("requests", resources.Requests)
	negative("limits", resources.Limits)
	for _, name := range slices.Sorted(maps.Keys(resources.Requests)) {
		request := resources.Requests[name]
		if limit, ok := resources.Limits[name]; ok && request.Cmp(limit) > 0 {
			faults = append(faults, fmt.Errorf("%s.requests.%s is %s, above its limit %s", at, name, request.String(), limit.String()))
		}
	}
	return faults
}

func runtimeFaults(runtimes []v1alpha1.SandboxRuntimeSpec) []error {
	var faults []error
	names := map[string]bool{}
	for i := range runtimes {
		r := &runtimes[i]
		at := fmt.Sprintf("spec.runtimes[%d]", i)
		if r.Name == "" || names[r.Name] {
			faults = append(faults, fmt.Errorf("%s.name is %q; valid: a name that no other runtime has", at, r.Name))
		}
		names[r.Name] = true
		if r.Port != nil && len(validation.IsValidPortNum(int(*r.Port))) > 0 {
			faults = append(faults, fmt.Errorf("%s.port is %d; valid: 1 to 65535", at, *r.Port))
		}
	}
	return faults
}

// Sentence joins faults into a condition's message.
func Sentence(faults []error) string {
	texts := make([]string, len(faults))
	for i, fault := range faults {
		texts[i] = fault.Error()
	}
	return clip.Text(strings.Join(texts, "; "), LongestMessage)
}
