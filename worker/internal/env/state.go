// SPDX-License-Identifier: Apache-2.0

package env

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// stateOf says whether a member can serve, given its live pool.
func stateOf(o *observation, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) v1alpha1.ObservedMemberState {
	switch {
	case terminating(pool):
		return v1alpha1.ObservedMemberStateMissing
	case len(mismatches(o, member, pool)) > 0:
		return v1alpha1.ObservedMemberStateInconsistent
	case saturated(o, member, pool):
		return v1alpha1.ObservedMemberStateSaturated
	default:
		return v1alpha1.ObservedMemberStateActive
	}
}

// saturated reports that a member cannot grow: the last attempt to was refused not long ago, or it, or the part of its
// group that is in this cluster, is at its ceiling. What other clusters have of the group is not looked at: no decision
// reads their segments from an Env.
func saturated(o *observation, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) bool {
	if saturatedUntil(o, member, pool) != nil {
		return true
	}
	if ceiling := member.Config.MaxReplicas; ceiling != nil && pool.Spec.Replicas >= *ceiling {
		return true
	}
	ceiling := groupCeiling(o.env, member.Config.ScalingGroup)
	if ceiling == nil {
		return false
	}
	var held int32
	members := o.members()
	for i := range members {
		other := &members[i]
		if live := o.pools[other.Name]; live != nil && owns(o.env, live) && other.Config.ScalingGroup == member.Config.ScalingGroup {
			held += live.Spec.Replicas
		}
	}
	return held >= *ceiling
}

// saturatedUntil mirrors what the autoscaler has found: until when its last attempt to grow the pool, which was not
// admitted whole, keeps it from another; nil if nothing does now. It is a time for people and for state; at its ceiling a
// member is saturated without one.
func saturatedUntil(o *observation, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) *metav1.Time {
	found, group := pool.Status.AutoScaling, groupOf(o.env, member.Config.ScalingGroup)
	if found == nil || found.LastScaleUpAttemptTime == nil || group == nil || !group.Enabled {
		return nil
	}
	switch found.LastScaleUpAttemptResult {
	case "", v1alpha1.PoolScaleUpAttemptEnough:
		return nil
	}
	cooldown := time.Duration(group.ScaleUpPolicy.SaturationCooldownSeconds) * time.Second
	left := cooldown - o.since(found.LastScaleUpAttemptTime.Time)
	// Times are stored in whole seconds: with parts of one it would be written again at each look.
	until := metav1.NewTime(o.now.Add(left).Round(time.Second))
	if !until.After(o.now) {
		return nil
	}
	return &until
}

func groupCeiling(env *v1alpha1.SandboxEnv, group string) *int32 {
	if g := groupOf(env, group); g != nil {
		return g.MaxReplicas
	}
	return nil
}

// groupOf is the autoscaling group of a name; nil if there is none.
func groupOf(env *v1alpha1.SandboxEnv, name string) *v1alpha1.EnvAutoscalingGroup {
	if name == "" || env.Spec.Autoscaling == nil {
		return nil
	}
	for i := range env.Spec.Autoscaling.Groups {
		if g := &env.Spec.Autoscaling.Groups[i]; g.Name == name {
			return g
		}
	}
	return nil
}

// origin is what a pool was rendered from.
type origin struct {
	template, version, revision string
	overrides                   *overrides // nil if not recorded
	labels, annotations         map[string]string
	resources                   *corev1.ResourceRequirements
}

// originOf reads the snapshot, or the live pool where the snapshot is lost.
func originOf(member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) origin {
	labels, annotations, spec := member.Metadata.Labels, member.Metadata.Annotations, &member.Spec
	if !hasSnapshot(member) {
		labels, annotations, spec = pool.Labels, pool.Annotations, &pool.Spec
	}
	from := origin{
		labels: labels, annotations: annotations,
		template: annotations[v1alpha1.SandboxPoolTemplateNameAnnotationKey],
		version:  annotations[v1alpha1.SandboxPoolTemplateVersionAnnotationKey],
		revision: annotations[v1alpha1.TemplateRevisionAnnotationKey],
	}
	if from.template == "" {
		from.template = spec.TemplateName
	}
	// The system that the API comes from has something else in an annotation of this name. A revision is ours alone.
	var recorded overrides
	if from.revision != "" && json.Unmarshal([]byte(annotations[v1alpha1.SandboxPoolOverridesAnnotationKey]), &recorded) == nil {
		from.overrides = &recorded
	}
	if containers := spec.Template.Spec.Containers; len(containers) > 0 {
		from.resources = &containers[0].Resources
	}
	return from
}

// mismatches are the points in which a member's pool is not what the Env asks for, and which make it unfit to serve. A
// newer template, or other overrides, are none: they show in TemplateConsistent.
func mismatches(o *observation, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) []string {
	from, config, ref := originOf(member, pool), &member.Config, o.env.Spec.TemplateRef
	var points []string
	add := func(what string, have, want any) {
		points = append(points, fmt.Sprintf("made with %s %v, now %v; refresh the member", what, have, want))
	}
	if from.template != "" && from.template != ref.Name {
		add("template", from.template, ref.Name)
	}
	if ref.Version != "" && from.version != "" && from.version != ref.Version {
		add("template version", from.version, ref.Version)
	}
	switch {
	case from.overrides == nil:
		if want := wantedResources(o, config); want != nil && !sameResources(from.resources, want) {
			add("resources", describe(from.resources), describe(want))
		}
		return points
	case from.overrides.InstanceType != config.InstanceType:
		add("instance type", fmt.Sprintf("%q", from.overrides.InstanceType), fmt.Sprintf("%q", config.InstanceType))
	case from.overrides.Multiplier != config.Multiplier:
		add("multiplier", from.overrides.Multiplier, config.Multiplier)
	}
	// Beside an instance type they are a note.
	if config.InstanceType == "" && !equality.Semantic.DeepEqual(from.overrides.Resources, config.InlineResources) {
		add("resources", describe(from.overrides.Resources), describe(config.InlineResources))
	}
	return points
}

// wantedResources are those that a config asks for; nil if the template's will do, or nobody can tell.
func wantedResources(o *observation, config *v1alpha1.EnvClusterMemberConfig) *corev1.ResourceRequirements {
	if config.InstanceType == "" {
		return config.InlineResources
	}
	resources, err := typeResources(o, config)
	if err != nil {
		return nil
	}
	return resources
}

func describe(resources *corev1.ResourceRequirements) string {
	if resources == nil {
		return "the template's"
	}
	content, err := json.Marshal(resources)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// outdated says in what a member's pool is behind the template or the overrides of the Env; "" if in nothing.
func outdated(o *observation, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) string {
	from, tmpl := originOf(member, pool), o.template
	if from.overrides == nil || tmpl == nil {
		return ""
	}
	// A template that has moved on from the version the Env is pinned to makes no member of that version old.
	if pinned := o.env.Spec.TemplateRef.Version; pinned == "" || pinned == tmpl.Version {
		if from.revision != tmpl.Revision {
			return fmt.Sprintf("made from revision %s, the template is at %s", from.revision, tmpl.Revision)
		}
		if from.version != tmpl.Version {
			return fmt.Sprintf("made from version %q, the template is at %q", from.version, tmpl.Version)
		}
	}
	now := overridesOf(o.env, member)
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

// madeWithKeys reports whether a pool was made with the labels and annotations that a config has. Where they were not recorded
// those on the pool are looked at, which does not tell of one that was taken out of the config.
func madeWithKeys(from *origin, config *v1alpha1.EnvClusterMemberConfig) bool {
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
