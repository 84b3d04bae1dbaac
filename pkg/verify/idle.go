// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// Identity labels that a template may also set, for the scheduler.
var tenantLabels = []string{v1alpha1.LabelTeam, v1alpha1.LabelUser}

var identityLabels = append([]string{v1alpha1.SandboxIDLabelKey, v1alpha1.ClaimKeyHashLabelKey}, tenantLabels...)

var identityAnnotations = slices.Concat(v1alpha1.TenantAnnotationKeys, tenantLabels)

// idleIsClean checks that an idle Pod carries nothing of a tenant. An annotation with the value "" counts as absent.
func idleIsClean(s *Snapshot) []Finding {
	var found []Finding
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Pods {
			p := &c.Pods[j]
			if left := leftOn(c, p); phase(p) == v1alpha1.SandboxPhaseIdle && len(left) > 0 {
				found = append(found, Finding{Invariant: "I13", Cluster: c.ID, Object: podName(p),
					Wrong: "is idle and carries " + strings.Join(left, ", "), Expected: "all of it to go in the write that made the Pod idle"})
			}
		}
	}
	return found
}

func leftOn(c *Cluster, p *corev1.Pod) []string {
	var labels, annotations map[string]string // from the template, on every Pod
	if pool := poolOf(c, p.Namespace, p.Labels[v1alpha1.SandboxPoolLabelKey]); pool != nil {
		labels, annotations = pool.Spec.Template.Labels, pool.Spec.Template.Annotations
	}
	var left []string
	for _, key := range identityLabels {
		if value := p.Labels[key]; value != "" && value != labels[key] {
			left = append(left, key)
		}
	}
	for key, value := range p.Labels {
		if strings.HasPrefix(key, v1alpha1.TenantLabelPrefix) && value != labels[key] {
			left = append(left, key)
		}
	}
	slices.Sort(left)
	for _, key := range identityAnnotations {
		if value := p.Annotations[key]; value != "" && value != annotations[key] && !slices.Contains(left, key) {
			left = append(left, key)
		}
	}
	return left
}

// containers returns the ids of a Pod's current and earlier containers.
func containers(p *corev1.Pod) []string {
	var ids []string
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			if id := statuses[i].ContainerID; id != "" {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// tenantsContainer returns the id of a container of an idle Pod that existed while the Pod had a tenant, or "".
func tenantsContainer(before, after *corev1.Pod) string {
	if !busy(before) && phase(before) != v1alpha1.SandboxPhaseStopping || phase(after) != v1alpha1.SandboxPhaseIdle {
		return ""
	}
	had := containers(before)
	if phase(before) == v1alpha1.SandboxPhaseStopping {
		// The idle image may have been running already; the release recorded the tenant's container.
		had = []string{before.Annotations[v1alpha1.SandboxContainerIDAnnotationKey]}
	}
	for _, id := range containers(after) {
		if slices.ContainsFunc(had, func(h string) bool { return h != "" && strings.EqualFold(h, id) }) {
			return id
		}
	}
	return ""
}
