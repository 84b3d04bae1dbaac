// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"navix.sh/atoll/api/v1alpha1"
)

// typeResources are those of a config's instance type times its multiplier, as the catalogue has them now; nil without an
// instance type.
func typeResources(o *observation, config *v1alpha1.EnvClusterMemberConfig) (*corev1.ResourceRequirements, error) {
	if config.InstanceType == "" {
		return nil, nil
	}
	return o.types.Resolve("config", config.InstanceType, config.Multiplier)
}

// effective are the resources of the first container, if they are not the template's: an instance type wins.
func (o *overrides) effective() *corev1.ResourceRequirements {
	if o.TypeResources != nil {
		return o.TypeResources
	}
	return o.Resources
}

// typeChanged says in what the catalogue has moved on from a member that was made of it; "" if in nothing, or where the
// member's own config did, which is another matter. A pool of a release that took inlineResources for an instance type has
// what it was made with.
func typeChanged(o *observation, member *v1alpha1.EnvClusterMember, from *origin) string {
	was := from.overrides
	if was == nil || was.InstanceType == "" || was.InstanceType != member.Config.InstanceType || was.Multiplier != member.Config.Multiplier {
		return ""
	}
	now, err := typeResources(o, &member.Config)
	if err != nil {
		return "goes on as it was made, although " + err.Error()
	}
	if made := was.effective(); !equality.Semantic.DeepEqual(made, now) {
		return fmt.Sprintf("made with %s, instance type %s x %d is now %s; refresh the member",
			describe(made), was.InstanceType, was.Multiplier, describe(now))
	}
	return ""
}

// unequalSibling says that a member has other resources than the first one of its autoscaling group here, "" if it has not:
// a group is scaled as if its members were the same. The schema sees to it that their configs are; what they were made of
// may have changed between one and the next, and such a member serves all the same.
func unequalSibling(o *observation, member *v1alpha1.EnvClusterMember) string {
	group := member.Config.ScalingGroup
	if groupOf(o.env, group) == nil {
		return ""
	}
	members := o.members()
	for i := range members {
		first := &members[i]
		if first.Config.ScalingGroup != group {
			continue
		}
		if first.Name == member.Name {
			return "" // it is the first one
		}
		theirs, known := resourcesOf(o, first)
		if !known {
			continue
		}
		own, known := resourcesOf(o, member)
		if !known || sameResources(own, theirs) {
			return ""
		}
		return fmt.Sprintf("has %s, and member %s of the same scaling group %s has %s; refresh the older one",
			describe(own), first.Name, group, describe(theirs))
	}
	return ""
}

// resourcesOf are those of a Pod of a member, made or yet to be made; known is false if it cannot be made.
func resourcesOf(o *observation, member *v1alpha1.EnvClusterMember) (resources *corev1.ResourceRequirements, known bool) {
	pool := o.pools[member.Name]
	if pool != nil && !owns(o.env, pool) {
		pool = nil
	}
	if hasSnapshot(member) || pool != nil {
		resources = originOf(member, pool).resources
		return resources, resources != nil
	}
	applied := overridesOf(o.env, member)
	var err error
	if applied.TypeResources, err = typeResources(o, &member.Config); err != nil {
		return nil, false
	}
	if resources = applied.effective(); resources != nil || o.template == nil {
		return resources, resources != nil
	}
	return o.template.Resources, true
}

// sameResources takes none for the same as an empty set.
func sameResources(a, b *corev1.ResourceRequirements) bool {
	if a == nil {
		a = &corev1.ResourceRequirements{}
	}
	if b == nil {
		b = &corev1.ResourceRequirements{}
	}
	return equality.Semantic.DeepEqual(a.Requests, b.Requests) && equality.Semantic.DeepEqual(a.Limits, b.Limits)
}

// namesType reports whether anything of an Env that concerns this cluster is from the catalogue.
func namesType(env *v1alpha1.SandboxEnv, clusterID string) bool {
	if d := env.Spec.Defaults; d != nil && d.InstanceType != "" {
		return true
	}
	local := observation{clusterID: clusterID, env: env}
	return slices.ContainsFunc(local.members(), func(m v1alpha1.EnvClusterMember) bool { return m.Config.InstanceType != "" })
}

// defaultsFault says what is wrong with the shape that claims get which name none; "" if nothing is. It keeps no member from
// serving.
func defaultsFault(o *observation) string {
	defaults := o.env.Spec.Defaults
	if defaults == nil || defaults.InstanceType == "" {
		return ""
	}
	err := o.types.Known("spec.defaults", defaults.InstanceType)
	if err == nil && defaults.Multiplier != 0 { // 0: any
		_, err = o.types.Resolve("spec.defaults", defaults.InstanceType, defaults.Multiplier)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
