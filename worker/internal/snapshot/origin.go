// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"navix.sh/atoll/api/v1alpha1"
)

// Origin is the template and the overrides that a pool was rendered from.
type Origin struct {
	Template, Version   string
	revision            string
	overrides           *overrides // nil if not recorded
	labels, annotations map[string]string
	resources           *corev1.ResourceRequirements
}

// OriginOf returns the origin in the snapshot, or in the live pool if the snapshot is lost.
func OriginOf(member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) Origin {
	labels, annotations, spec := member.Metadata.Labels, member.Metadata.Annotations, &member.Spec
	if !Has(member) {
		labels, annotations, spec = pool.Labels, pool.Annotations, &pool.Spec
	}
	from := Origin{
		labels: labels, annotations: annotations,
		Template: annotations[v1alpha1.SandboxPoolTemplateNameAnnotationKey],
		Version:  annotations[v1alpha1.SandboxPoolTemplateVersionAnnotationKey],
		revision: annotations[v1alpha1.TemplateRevisionAnnotationKey],
	}
	if from.Template == "" {
		from.Template = spec.TemplateName
	}
	// The system that the API comes from stores something else in an annotation of this name. Only Atoll writes a revision.
	var recorded overrides
	if from.revision != "" && json.Unmarshal([]byte(annotations[v1alpha1.SandboxPoolOverridesAnnotationKey]), &recorded) == nil {
		from.overrides = &recorded
	}
	if containers := spec.Template.Spec.Containers; len(containers) > 0 {
		from.resources = &containers[0].Resources
	}
	return from
}

// Mismatches returns the differences between a member's pool and the Env that make the pool unfit to serve. It ignores a newer template and
// other overrides, which TemplateConsistent shows.
func (s *Source) Mismatches(member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) []string {
	from, config, ref := OriginOf(member, pool), &member.Config, s.Env.Spec.TemplateRef
	var points []string
	add := func(what string, have, want any) {
		points = append(points, fmt.Sprintf("made with %s %v, now %v; refresh the member", what, have, want))
	}
	if from.Template != "" && from.Template != ref.Name {
		add("template", from.Template, ref.Name)
	}
	if ref.Version != "" && from.Version != "" && from.Version != ref.Version {
		add("template version", from.Version, ref.Version)
	}
	switch {
	case from.overrides == nil:
		if want := s.wantedResources(config); want != nil && !SameResources(from.resources, want) {
			add("resources", Describe(from.resources), Describe(want))
		}
		return points
	case from.overrides.InstanceType != config.InstanceType:
		add("instance type", fmt.Sprintf("%q", from.overrides.InstanceType), fmt.Sprintf("%q", config.InstanceType))
	case from.overrides.Multiplier != config.Multiplier:
		add("multiplier", from.overrides.Multiplier, config.Multiplier)
	}
	// With an instance type, inlineResources are only a note.
	if config.InstanceType == "" && !equality.Semantic.DeepEqual(from.overrides.Resources, config.InlineResources) {
		add("resources", Describe(from.overrides.Resources), Describe(config.InlineResources))
	}
	return points
}

// wantedResources returns the resources that a config asks for, or nil if they are the template's or unknown.
func (s *Source) wantedResources(config *v1alpha1.EnvClusterMemberConfig) *corev1.ResourceRequirements {
	if config.InstanceType == "" {
		return config.InlineResources
	}
	resources, err := s.typeResources(config)
	if err != nil {
		return nil
	}
	return resources
}

// Describe returns a description of resources for a condition.
func Describe(resources *corev1.ResourceRequirements) string {
	if resources == nil {
		return "the template's"
	}
	content, err := json.Marshal(resources)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// Outdated returns how a member's pool is behind the Env's template or overrides, or "" if it is not.
func (s *Source) Outdated(member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) string {
	from, tmpl := OriginOf(member, pool), s.Template
	if from.overrides == nil || tmpl == nil {
		return ""
	}
	// If the Env is pinned to a version, a newer version of the template does not outdate members of the pinned one.
	if pinned := s.Env.Spec.TemplateRef.Version; pinned == "" || pinned == tmpl.Version {
		if from.revision != tmpl.Revision {
			return fmt.Sprintf("made from revision %s, the template is at %s", from.revision, tmpl.Revision)
		}
		if from.Version != tmpl.Version {
			return fmt.Sprintf("made from version %q, the template is at %q", from.Version, tmpl.Version)
		}
	}
	now := overridesOf(s.Env, member)
	now.InstanceType, now.Multiplier, now.Resources = from.overrides.InstanceType, from.overrides.Multiplier, from.overrides.Resources
	now.TypeResources, now.Keys = from.overrides.TypeResources, from.overrides.Keys
	if !equality.Semantic.DeepEqual(now, *from.overrides) {
		return "made with other spec.overrides"
	}
	if !madeWithKeys(&from, &member.Config) {
		return "made with other config.labels or config.annotations"
	}
	return ""
}

// madeWithKeys reports whether a pool was rendered with the config's labels and annotations. If they were not recorded it
// compares those on the pool, which misses keys that were removed from the config.
func madeWithKeys(from *Origin, config *v1alpha1.EnvClusterMemberConfig) bool {
	if from.overrides.Keys != "" {
		return from.overrides.Keys == keysOf(config)
	}
	return hasAll(from.labels, config.Labels) && hasAll(from.annotations, config.Annotations)
}

func hasAll(of, keys map[string]string) bool {
	for key, want := range keys {
		if have, ok := of[key]; !ok || have != want {
			return false
		}
	}
	return true
}

// TypeChanged returns how the catalogue has changed since the member was rendered. It returns "" if it has not, or if the member's own
// config has changed, which is reported elsewhere. A pool of a release that wrote inlineResources for an instance type has the resources
// that it was rendered with.
func (s *Source) TypeChanged(member *v1alpha1.EnvClusterMember, from *Origin) string {
	was := from.overrides
	if was == nil || was.InstanceType == "" || was.InstanceType != member.Config.InstanceType || was.Multiplier != member.Config.Multiplier {
		return ""
	}
	now, err := s.typeResources(&member.Config)
	if err != nil {
		return "goes on as it was made, although " + err.Error()
	}
	if made := was.effective(); !equality.Semantic.DeepEqual(made, now) {
		return fmt.Sprintf("made with %s, instance type %s x %d is now %s; refresh the member",
			Describe(made), was.InstanceType, was.Multiplier, Describe(now))
	}
	return ""
}

// ResourcesOf returns the resources of a member's existing or future Pods. known is false if none can be created.
func (s *Source) ResourcesOf(
	member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool,
) (resources *corev1.ResourceRequirements, known bool) {
	if Has(member) || pool != nil {
		resources = OriginOf(member, pool).resources
		return resources, resources != nil
	}
	applied := overridesOf(s.Env, member)
	var err error
	if applied.TypeResources, err = s.typeResources(&member.Config); err != nil {
		return nil, false
	}
	if resources = applied.effective(); resources != nil || s.Template == nil {
		return resources, resources != nil
	}
	return s.Template.Resources, true
}

// SameResources treats nil and an empty set as equal.
func SameResources(a, b *corev1.ResourceRequirements) bool {
	if a == nil {
		a = &corev1.ResourceRequirements{}
	}
	if b == nil {
		b = &corev1.ResourceRequirements{}
	}
	return equality.Semantic.DeepEqual(a.Requests, b.Requests) && equality.Semantic.DeepEqual(a.Limits, b.Limits)
}
