// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/worker/internal/allowed"
	"navix.sh/atoll/worker/internal/instances"
	"navix.sh/atoll/worker/internal/podtemplate"
)

// Source has the inputs of rendering, besides the member.
type Source struct {
	Env *v1alpha1.SandboxEnv
	// Template is the template that spec.templateRef names, or nil if it does not exist.
	Template *podtemplate.Template
	// Types are the cluster's instance types.
	Types instances.Catalogue
	// PullSecret is set if the Env's own pull secret exists.
	PullSecret bool
}

// overrides are the inputs of a snapshot besides its template, as JSON in the pool's overrides annotation. They show later whether the Env
// still asks for the same.
type overrides struct {
	Image                  string                          `json:"image,omitempty"`
	PodCreationImagePolicy v1alpha1.PodCreationImagePolicy `json:"podCreationImagePolicy,omitempty"`
	DefaultStartupTimeout  *metav1.Duration                `json:"defaultStartupTimeout,omitempty"`
	DefaultIdleTimeout     *metav1.Duration                `json:"defaultIdleTimeout,omitempty"`
	InstanceType           string                          `json:"instanceType,omitempty"`
	Multiplier             int32                           `json:"multiplier,omitempty"`
	Resources              *corev1.ResourceRequirements    `json:"resources,omitempty"`
	// TypeResources are the instance type's resources times the multiplier, from the catalogue at that time.
	TypeResources *corev1.ResourceRequirements `json:"typeResources,omitempty"`
	// Keys is a digest of the labels and annotations of the member's config. They are on the pool themselves, and all its annotations together
	// have a limit. Earlier releases did not record the digest.
	Keys string `json:"keys,omitempty"`
}

func overridesOf(env *v1alpha1.SandboxEnv, member *v1alpha1.EnvClusterMember) overrides {
	o := overrides{
		InstanceType: member.Config.InstanceType,
		Multiplier:   member.Config.Multiplier,
		Resources:    member.Config.InlineResources,
		Keys:         keysOf(&member.Config),
	}
	if common := env.Spec.Overrides; common != nil {
		o.Image, o.PodCreationImagePolicy = common.Image, common.PodCreationImagePolicy
		o.DefaultStartupTimeout, o.DefaultIdleTimeout = common.DefaultStartupTimeout, common.DefaultIdleTimeout
	}
	return o
}

// keysOf returns a digest of the labels and annotations of a config; "" if it has none.
func keysOf(config *v1alpha1.EnvClusterMemberConfig) string {
	if len(config.Labels)+len(config.Annotations) == 0 {
		return ""
	}
	content, err := json.Marshal([]map[string]string{config.Labels, config.Annotations})
	if err != nil {
		return "" // encoding strings does not fail
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:8])
}

// Render renders a member's snapshot from the template, the Env's overrides and the member's config. It ignores the member's spec in the
// manifest, except for replicas, because the worker owns that part of the Env.
func (s *Source) Render(member *v1alpha1.EnvClusterMember, replicas int32) (*Snapshot, error) {
	if err := checkKeys(member.Config); err != nil {
		return nil, err
	}
	tmpl, applied := s.Template, overridesOf(s.Env, member)
	if inline := applied.Resources; inline != nil && applied.InstanceType == "" {
		if faults := podtemplate.ResourceFaults("config.inlineResources", inline); len(faults) > 0 {
			return nil, errors.New(podtemplate.Sentence(faults))
		}
	}
	var err error
	if applied.TypeResources, err = s.typeResources(&member.Config); err != nil {
		return nil, err
	}
	spec := runtime.DeepCopyJSON(tmpl.Spec)
	if err := overlay(spec, applied); err != nil {
		return nil, fmt.Errorf("SandboxTemplate %s: %w", tmpl.Name, err)
	}
	spec["templateName"] = tmpl.Name
	if s.PullSecret {
		AddPullSecret(spec, v1alpha1.EnvImagePullSecretName(s.Env.Name))
	}
	if err := podtemplate.Check(spec); err != nil {
		return nil, fmt.Errorf("SandboxTemplate %s: %w", tmpl.Name, err)
	}
	annotation, err := json.Marshal(applied)
	if err != nil {
		return nil, fmt.Errorf("encoding overrides: %w", err)
	}
	rendered := &Snapshot{
		Labels:      merged(podtemplate.Inheritable(tmpl.Labels), member.Config.Labels),
		Annotations: merged(podtemplate.Inheritable(tmpl.Annotations), member.Config.Annotations),
		Spec:        spec,
	}
	if faults := allowed.Faults(rendered.Annotations); len(faults) > 0 {
		return nil, errors.New(podtemplate.Sentence(faults))
	}
	rendered.SetReplicas(replicas)
	rendered.Annotations[v1alpha1.SandboxPoolTemplateNameAnnotationKey] = tmpl.Name
	rendered.Annotations[v1alpha1.SandboxPoolTemplateVersionAnnotationKey] = tmpl.Version
	rendered.Annotations[v1alpha1.TemplateRevisionAnnotationKey] = tmpl.Revision
	rendered.Annotations[v1alpha1.SandboxPoolOverridesAnnotationKey] = string(annotation)
	if size := sizeOf(rendered.Annotations); size > mostAnnotations {
		return nil, fmt.Errorf("config.annotations: with those of SandboxTemplate %s they are %d bytes; valid: at most %d", tmpl.Name, size,
			mostAnnotations)
	}
	return rendered, nil
}

// mostAnnotations is the API server's limit for a pool, less some room for annotations of others and for our lists of keys.
const mostAnnotations = apivalidation.TotalAnnotationSizeLimitB * 3 / 4

func sizeOf(keys map[string]string) (size int) {
	for key, value := range keys {
		size += len(key) + len(value)
	}
	return size
}

// overlay applies overrides to a pool spec that was copied from a template.
func overlay(spec map[string]any, o overrides) error {
	pod, _ := spec["template"].(map[string]any)
	podSpec, _ := pod["spec"].(map[string]any)
	containers, _ := podSpec["containers"].([]any)
	if len(containers) == 0 {
		return errors.New("spec.template.spec.containers is empty")
	}
	main, ok := containers[0].(map[string]any)
	if !ok {
		return errors.New("spec.template.spec.containers[0] is no object")
	}
	if o.Image != "" {
		main["image"] = o.Image
	}
	if image, _ := main["image"].(string); image == "" {
		return errors.New("spec.template.spec.containers[0].image is empty, and spec.overrides.image as well")
	}
	podtemplate.WithoutToken(spec)
	if effective := o.effective(); effective != nil {
		resources, err := runtime.DefaultUnstructuredConverter.ToUnstructured(effective)
		if err != nil {
			return fmt.Errorf("encoding the resources of the first container: %w", err)
		}
		main["resources"] = resources
	}
	if o.PodCreationImagePolicy != "" {
		spec["podCreationImagePolicy"] = string(o.PodCreationImagePolicy)
	}
	for field, timeout := range map[string]*metav1.Duration{
		"defaultStartupTimeout": o.DefaultStartupTimeout,
		"defaultIdleTimeout":    o.DefaultIdleTimeout,
	} {
		if timeout != nil {
			spec[field] = timeout.Duration.String()
		}
	}
	return nil
}

func checkKeys(config v1alpha1.EnvClusterMemberConfig) error {
	for _, part := range []struct {
		field string
		keys  map[string]string
	}{{"labels", config.Labels}, {"annotations", config.Annotations}} {
		for _, key := range sortedKeys(part.keys) {
			if podtemplate.Reserved(key) {
				return fmt.Errorf("config.%s: %s is reserved; remove it", part.field, key)
			}
		}
	}
	if errs := metavalidation.ValidateLabels(config.Labels, field.NewPath("config", "labels")); len(errs) > 0 {
		return errs[0]
	}
	for _, key := range sortedKeys(config.Annotations) {
		if errs := validation.IsQualifiedName(strings.ToLower(key)); len(errs) > 0 {
			return fmt.Errorf("config.annotations: %q is no key of an annotation: %s", clip.Text(key, 300), errs[0])
		}
	}
	return nil
}

// typeResources returns the resources of a config's instance type times its multiplier, from the current catalogue, or nil without an
// instance type.
func (s *Source) typeResources(config *v1alpha1.EnvClusterMemberConfig) (*corev1.ResourceRequirements, error) {
	if config.InstanceType == "" {
		return nil, nil
	}
	return s.Types.Resolve("config", config.InstanceType, config.Multiplier)
}

// effective returns the resources of the first container if they are not the template's. An instance type takes precedence.
func (o *overrides) effective() *corev1.ResourceRequirements {
	if o.TypeResources != nil {
		return o.TypeResources
	}
	return o.Resources
}
