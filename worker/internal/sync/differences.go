// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"slices"
	"strings"

	"navix.sh/atoll/api/v1alpha1"
)

// differences describes where spec.clusters of this Env differs from the specs of the segments' owners. spec.clusters is as of the last
// apply to this Env, and no worker writes another cluster's segment (I3). Clusters of which nothing is known are left out.
func differences(env *v1alpha1.SandboxEnv, entries []entry) []string {
	var out []string
	for i := range env.Spec.Clusters {
		c := &env.Spec.Clusters[i]
		at := slices.IndexFunc(entries, func(e entry) bool { return e.ClusterID == c.ClusterID })
		if at < 0 || collapsedBefore(entries[at]) {
			continue
		}
		theirs := entries[at].ObservedMembers
		for j := range c.Members {
			m := &c.Members[j]
			k := slices.IndexFunc(theirs, func(t member) bool { return t.Name == m.Name })
			if k < 0 {
				out = append(out, fmt.Sprintf("%s has no member %s", c.ClusterID, m.Name))
			} else if d := theirs[k].differs(m, env); len(d) > 0 {
				out = append(out, fmt.Sprintf("%s/%s has %s", c.ClusterID, m.Name, strings.Join(d, " and ")))
			}
		}
		for _, t := range theirs {
			if !slices.ContainsFunc(c.Members, func(m v1alpha1.EnvClusterMember) bool { return m.Name == t.Name }) {
				out = append(out, fmt.Sprintf("%s has a member %s", c.ClusterID, t.Name))
			}
		}
	}
	return out
}

// collapsedBefore reports whether an entry was carried over from a status that shows totals.
func collapsedBefore(e entry) bool {
	return slices.ContainsFunc(e.ObservedMembers, func(m member) bool { return strings.HasPrefix(m.Name, totalPrefix) })
}

// differs lists the fields in which the owner's member differs. Replicas that are not stated here, or that an autoscaler sets, do not
// count.
func (m *member) differs(here *v1alpha1.EnvClusterMember, env *v1alpha1.SandboxEnv) []string {
	var out []string
	group := env.ScalingGroup(here.Config.ScalingGroup)
	autoscaled := group != nil && group.Enabled
	if n := here.Spec.Replicas; n != 0 && n != m.DesiredReplicas && !autoscaled {
		out = append(out, fmt.Sprintf("%d replicas, not %d", m.DesiredReplicas, n))
	}
	if c := &here.Config; c.InstanceType != m.InstanceType || c.Multiplier != m.Multiplier {
		out = append(out, fmt.Sprintf("instance type %q x%d, not %q x%d", m.InstanceType, m.Multiplier, c.InstanceType, c.Multiplier))
	}
	if c := &here.Config; c.ScalingGroup != m.ScalingGroup {
		out = append(out, fmt.Sprintf("scaling group %q, not %q", m.ScalingGroup, c.ScalingGroup))
	}
	if c := &here.Config; c.Priority != m.Priority {
		out = append(out, fmt.Sprintf("priority %d, not %d", m.Priority, c.Priority))
	}
	return out
}
