// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/pkg/problem"
)

// conditionsOf are the three conditions that this package owns, with the times of those in the Env where their status
// has not changed.
func conditionsOf(o *observation, p *plan, clk clock.PassiveClock) []metav1.Condition {
	wanted := []patch.Condition{readyOf(o, p), templateConsistentOf(o), autoscalingActiveOf(o)}
	var conditions []metav1.Condition
	for _, c := range o.env.Status.Conditions {
		if slices.ContainsFunc(wanted, func(w patch.Condition) bool { return w.Type == c.Type }) {
			conditions = append(conditions, c)
		}
	}
	for _, c := range wanted {
		patch.SetCondition(&conditions, clk, o.env.Generation, c)
	}
	return conditions
}

// longestMessage is half of what a condition's message may have; one that is longer would cost the Env all of its status.
const longestMessage = 16 << 10

func readyOf(o *observation, p *plan) patch.Condition {
	const ready = v1alpha1.SandboxEnvConditionReady
	if o.env.Spec.Mode == v1alpha1.SandboxEnvModeOnDemandJob {
		return patch.False(ready, v1alpha1.ReasonModeNotSupported, "mode OnDemandJob is not built; use WarmPool")
	}
	if len(p.members) == 0 {
		if elsewhere(o) {
			return patch.True(ready, v1alpha1.ReasonNoMembers, fmt.Sprintf("all members are in other clusters than %s", o.clusterID))
		}
		return patch.False(ready, v1alpha1.ReasonNoMembers, "spec.clusters has no members; add one")
	}
	var missing, inconsistent, full []string
	reason := v1alpha1.ReasonMembersMissing
	for i := range p.members {
		m := &p.members[i]
		line := fmt.Sprintf("%s: %s", m.name, m.message)
		if m.unrepaired { // whatever else it is, it stays that, and follows no number of replicas
			inconsistent = append(inconsistent, line)
			continue
		}
		switch m.state {
		case v1alpha1.ObservedMemberStateMissing:
			missing = append(missing, line)
			if m.reason == v1alpha1.ReasonTemplateNotFound {
				reason = v1alpha1.ReasonTemplateNotFound
			}
		case v1alpha1.ObservedMemberStateInconsistent:
			inconsistent = append(inconsistent, line)
		case v1alpha1.ObservedMemberStateSaturated:
			if m.message != "" {
				full = append(full, line)
			}
		}
	}
	for _, member := range o.members() {
		if told := partlyAdmitted(o, &member); told != "" {
			full = append(full, member.Name+": "+told)
		}
	}
	lines := problem.Clip(strings.Join(slices.Concat(missing, inconsistent, full), "; "), longestMessage)
	switch {
	case len(missing) > 0:
		return patch.False(ready, reason, lines)
	case len(inconsistent) > 0:
		return patch.False(ready, v1alpha1.ReasonMembersInconsistent, lines)
	}
	message := fmt.Sprintf("%d members in cluster %s", len(p.members), o.clusterID)
	if lines != "" {
		message += "; " + lines
	}
	if fault := defaultsFault(o); fault != "" {
		message += "; claims that name no shape find no member with an instance type: " + fault
	}
	return patch.True(ready, v1alpha1.ReasonMembersReady, message)
}

// elsewhere reports whether any other cluster has members of the Env.
func elsewhere(o *observation) bool {
	return slices.ContainsFunc(o.env.Spec.Clusters, func(c v1alpha1.EnvClusterSpec) bool {
		return c.ClusterID != o.clusterID && len(c.Members) > 0
	}) || slices.ContainsFunc(o.env.Status.Clusters, func(c v1alpha1.EnvClusterStatus) bool {
		return c.ClusterID != o.clusterID && len(c.ObservedMembers) > 0
	})
}

func templateConsistentOf(o *observation) patch.Condition {
	const consistent = v1alpha1.SandboxEnvConditionTemplateConsistent
	ref := o.env.Spec.TemplateRef
	if o.template == nil {
		return patch.False(consistent, v1alpha1.ReasonTemplateNotFound,
			fmt.Sprintf("there is no SandboxTemplate %q; pools that exist go on from their snapshots", ref.Name))
	}
	var other, version, old, types, unequal []string
	members := o.members()
	for i := range members {
		member, pool := &members[i], o.pools[members[i].Name]
		if !hasSnapshot(member) && (pool == nil || !owns(o.env, pool)) {
			if ref.Version != "" && ref.Version != o.template.Version {
				version = append(version, fmt.Sprintf("%s: cannot be made, the template is at version %q", member.Name, o.template.Version))
			}
			continue
		}
		from := originOf(member, pool)
		if from.template != "" && from.template != ref.Name {
			other = append(other, fmt.Sprintf("%s: made from template %s", member.Name, from.template))
		} else if ref.Version != "" && from.version != "" && from.version != ref.Version {
			version = append(version, fmt.Sprintf("%s: made from version %s", member.Name, from.version))
		} else if why := outdated(o, member, pool); why != "" {
			old = append(old, fmt.Sprintf("%s: %s", member.Name, why))
		}
		if why := typeChanged(o, member, &from); why != "" {
			types = append(types, fmt.Sprintf("%s: %s", member.Name, why))
		}
		if why := unequalSibling(o, member); why != "" {
			unequal = append(unequal, fmt.Sprintf("%s: %s", member.Name, why))
		}
	}
	lines := strings.Join(slices.Concat(other, version, old, types, unequal), "; ")
	switch {
	case len(other) > 0:
		return patch.False(consistent, v1alpha1.ReasonTemplateMismatch, lines)
	case len(version) > 0:
		return patch.False(consistent, v1alpha1.ReasonTemplateVersionMismatch, lines)
	case len(old) > 0:
		return patch.False(consistent, v1alpha1.ReasonTemplateOutdated, lines)
	case len(types) > 0:
		return patch.False(consistent, v1alpha1.ReasonInstanceTypeChanged, lines)
	case len(unequal) > 0:
		return patch.False(consistent, v1alpha1.ReasonMembersUnequal, lines)
	}
	return patch.True(consistent, v1alpha1.ReasonTemplateMatches,
		fmt.Sprintf("template %s, version %q, revision %s", ref.Name, o.template.Version, o.template.Revision))
}
