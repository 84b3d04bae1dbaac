// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/pkg/scalepolicy"
	"navix.sh/atoll/worker/internal/allowed"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/snapshot"
)

// conditionsOf returns the three conditions of this package. A condition whose status has not changed keeps its transition time.
func conditionsOf(o *observation, p *plan, clk clock.PassiveClock) []metav1.Condition {
	wanted := []patch.Condition{readyOf(o, p), templateConsistentOf(o), autoscalingActiveOf(o)}
	var conditions []metav1.Condition
	for _, c := range o.Env.Status.Conditions {
		if slices.ContainsFunc(wanted, func(w patch.Condition) bool { return w.Type == c.Type }) {
			conditions = append(conditions, c)
		}
	}
	for _, c := range wanted {
		c.Message = clip.Text(c.Message, longestMessage)
		patch.SetCondition(&conditions, clk, o.Env.Generation, c)
	}
	return conditions
}

// longestMessage is the API server's limit for a condition's message; it would refuse the whole status for a longer one. longestLines
// limits the lines about members, and so leaves room for the text after them.
const (
	longestMessage = 32 << 10
	longestLines   = longestMessage / 2
)

func readyOf(o *observation, p *plan) patch.Condition {
	const ready = v1alpha1.SandboxEnvConditionReady
	if o.Env.Spec.Mode == v1alpha1.SandboxEnvModeOnDemandJob {
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
		if m.unrepaired { // nothing else is repaired, and replicas stay as they are
			inconsistent = append(inconsistent, line)
			continue
		}
		switch m.state {
		case v1alpha1.ObservedMemberStateMissing:
			missing = append(missing, line)
			switch {
			case m.reason == v1alpha1.ReasonTemplateNotFound || m.reason == v1alpha1.ReasonTemplateNotVisible:
				reason = m.reason
			case reason == v1alpha1.ReasonMembersMissing && (m.reason == reasonMemberInvalid || m.reason == v1alpha1.ReasonTemplateVersionMismatch):
				reason = v1alpha1.ReasonMembersInvalid
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
		if note := partlyAdmitted(o, member); note != "" {
			full = append(full, member.Name+": "+note)
		}
	}
	lines := clip.Text(strings.Join(slices.Concat(missing, inconsistent, full), "; "), longestLines)
	switch {
	case len(missing) > 0:
		return patch.False(ready, reason, lines)
	case len(inconsistent) > 0:
		return patch.False(ready, v1alpha1.ReasonMembersInconsistent, lines)
	}
	message := fmt.Sprintf("%d members in cluster %s", len(p.members), o.clusterID)
	if len(p.members) == 1 {
		message = "1 member in cluster " + o.clusterID
	}
	if lines != "" {
		message += "; " + lines
	}
	if fault := defaultsFault(o); fault != "" {
		message += "; claims that name no shape find no member with an instance type: " + fault
	}
	if faults := allowed.Faults(o.Env.Annotations); len(faults) > 0 {
		message += "; a list allows nothing: " + podtemplate.Sentence(faults)
	}
	return patch.True(ready, v1alpha1.ReasonMembersReady, message)
}

// elsewhere reports whether any other cluster has members of the Env.
func elsewhere(o *observation) bool {
	return slices.ContainsFunc(o.Env.Spec.Clusters, func(c v1alpha1.EnvClusterSpec) bool {
		return c.ClusterID != o.clusterID && len(c.Members) > 0
	}) || slices.ContainsFunc(o.Env.Status.Clusters, func(c v1alpha1.EnvClusterStatus) bool {
		return c.ClusterID != o.clusterID && len(c.ObservedMembers) > 0
	})
}

func templateConsistentOf(o *observation) patch.Condition {
	const consistent = v1alpha1.SandboxEnvConditionTemplateConsistent
	ref := o.Env.Spec.TemplateRef
	if o.hidden {
		return patch.False(consistent, v1alpha1.ReasonTemplateNotVisible,
			podtemplate.NotVisible(ref.Name, o.Env.Namespace)+"; pools that exist go on from their snapshots")
	}
	if o.Template == nil {
		return patch.False(consistent, v1alpha1.ReasonTemplateNotFound,
			fmt.Sprintf("there is no SandboxTemplate %q; pools that exist go on from their snapshots", ref.Name))
	}
	var other, version, old, types, unequal []string
	for _, member := range o.members() {
		pool := o.pools[member.Name]
		if !snapshot.Has(member) && (pool == nil || !owns(o.Env, pool)) {
			if ref.Version != "" && ref.Version != o.Template.Version {
				version = append(version, fmt.Sprintf("%s: cannot be created, the template is at version %q", member.Name, o.Template.Version))
			}
			continue
		}
		from := snapshot.OriginOf(member, pool)
		if from.Template != "" && from.Template != ref.Name {
			other = append(other, fmt.Sprintf("%s: made from template %s", member.Name, from.Template))
		} else if ref.Version != "" && from.Version != "" && from.Version != ref.Version {
			version = append(version, fmt.Sprintf("%s: made from version %s", member.Name, from.Version))
		} else if why := o.Outdated(member, pool); why != "" {
			old = append(old, fmt.Sprintf("%s: %s", member.Name, why))
		}
		if why := o.TypeChanged(member, &from); why != "" {
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
		fmt.Sprintf("template %s, version %q, revision %s", ref.Name, o.Template.Version, o.Template.Revision))
}

// unequalSibling returns a message if a member's resources differ from those of the first local member of its scaling group, else "". The
// autoscaler treats the members of a group as equal. The schema keeps their configs equal, but a template or instance type may have changed
// between their renderings. Such a member still serves.
func unequalSibling(o *observation, member *v1alpha1.EnvClusterMember) string {
	group := member.Config.ScalingGroup
	if o.Env.ScalingGroup(group) == nil {
		return ""
	}
	for _, first := range o.members() {
		if first.Config.ScalingGroup != group {
			continue
		}
		if first.Name == member.Name {
			return "" // member is the first one
		}
		theirs, known := o.ResourcesOf(first, o.ownedPool(first.Name))
		if !known {
			continue
		}
		own, known := o.ResourcesOf(member, o.ownedPool(member.Name))
		if !known || snapshot.SameResources(own, theirs) {
			return ""
		}
		return fmt.Sprintf("has %s, and member %s of the same scaling group %s has %s; refresh the older one",
			snapshot.Describe(own), first.Name, group, snapshot.Describe(theirs))
	}
	return ""
}

// defaultsFault returns an error message if spec.defaults, the shape for claims that name none, is invalid, else "". Members serve
// nevertheless.
func defaultsFault(o *observation) string {
	defaults := o.Env.Spec.Defaults
	if defaults == nil || defaults.InstanceType == "" {
		return ""
	}
	err := o.Types.Known("spec.defaults", defaults.InstanceType)
	if err == nil && defaults.Multiplier != 0 { // 0: any
		_, err = o.Types.Resolve("spec.defaults", defaults.InstanceType, defaults.Multiplier)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// autoscalingActiveOf reports whether an autoscaler sets replicas, and if not, why.
func autoscalingActiveOf(o *observation) patch.Condition {
	const active = v1alpha1.SandboxEnvConditionAutoscalingActive
	autoscaling := o.Env.Spec.Autoscaling
	if autoscaling == nil || len(autoscaling.Groups) == 0 {
		return patch.False(active, v1alpha1.ReasonAutoscalingNotConfigured, "spec.autoscaling has no groups; replicas are set by hand")
	}
	var enabled, wrong, contested []string
	for i := range autoscaling.Groups {
		g := &autoscaling.Groups[i]
		if !g.Enabled {
			continue
		}
		enabled = append(enabled, g.Name)
		if fault := scalepolicy.Misconfigured(g); fault != "" {
			wrong = append(wrong, fault)
		}
	}
	for _, member := range o.members() {
		if o.contested[member.Name] {
			contested = append(contested, fmt.Sprintf("%s: %d", member.Name, member.Spec.Replicas))
		}
	}
	switch {
	case len(enabled) == 0:
		return patch.False(active, v1alpha1.ReasonAutoscalingDisabled, "no group is enabled; replicas are set by hand")
	case o.Env.Spec.Mode == v1alpha1.SandboxEnvModeOnDemandJob:
		return patch.False(active, v1alpha1.ReasonModeNotSupported, "nothing is scaled in mode OnDemandJob")
	case !o.autoscaler:
		return patch.False(active, v1alpha1.ReasonAutoscalerNotRunning,
			fmt.Sprintf("this worker runs no autoscaler; replicas of groups %s stay as they are", strings.Join(enabled, ", ")))
	case len(wrong) > 0:
		return patch.False(active, v1alpha1.ReasonAutoscalingMisconfigured, strings.Join(wrong, "; "))
	case len(contested) > 0:
		return patch.False(active, v1alpha1.ReasonReplicasContested, fmt.Sprintf(
			"another writer keeps setting replicas (%s), which stay as they are; take replicas out of what is applied, "+
				"or disable the group, and change the member's config or spec.autoscaling to have it scaled again", strings.Join(contested, ", ")))
	}
	return patch.True(active, v1alpha1.ReasonAutoscalerRunning, "groups "+strings.Join(enabled, ", "))
}
