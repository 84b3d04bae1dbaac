// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// Cluster is what one API server holds.
type Cluster struct {
	ID   string
	Pods []corev1.Pod
	Envs []v1alpha1.SandboxEnv
}

// Finding is one thing that should not be.
type Finding struct {
	Invariant string // I1, I2, …
	Cluster   string
	Object    string // kind namespace/name
	Message   string
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s in %s: %s", f.Invariant, f.Object, f.Cluster, f.Message)
}

// Check returns all findings, ordered by invariant, cluster and object.
func Check(clusters []Cluster) []Finding {
	var found []Finding
	found = append(found, sandboxesOnOnePod(clusters)...)
	found = append(found, keysOnOnePod(clusters)...)
	for _, c := range clusters {
		for i := range c.Pods {
			found = append(found, idleIsClean(c.ID, &c.Pods[i])...)
		}
		for i := range c.Envs {
			found = append(found, localSegmentIsOwn(c.ID, &c.Envs[i])...)
		}
	}
	found = append(found, foreignEqualsOwners(clusters)...)
	sort.SliceStable(found, func(i, j int) bool { return found[i].String() < found[j].String() })
	return found
}

func podName(p *corev1.Pod) string { return "pod " + p.Namespace + "/" + p.Name }

func phase(p *corev1.Pod) string { return p.Labels[v1alpha1.SandboxPhaseLabelKey] }

// live tells whether a Pod holds a sandbox that somebody may have been answered.
func live(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil &&
		(phase(p) == v1alpha1.SandboxPhaseRunning || phase(p) == v1alpha1.SandboxPhaseStarting)
}

func sandboxesOnOnePod(clusters []Cluster) []Finding {
	return duplicates("I1", "sandbox", clusters, func(c Cluster, p *corev1.Pod) (string, string) {
		id := p.Labels[v1alpha1.SandboxIDLabelKey]
		if !live(p) {
			return "", ""
		}
		if id == "" {
			return "", "is " + phase(p) + " without a sandbox id"
		}
		if id != p.Annotations[v1alpha1.SandboxIDAnnotationKey] {
			return id, fmt.Sprintf("label says sandbox %q, annotation %q", id, p.Annotations[v1alpha1.SandboxIDAnnotationKey])
		}
		if !strings.HasSuffix(id, "-"+c.ID) {
			return id, fmt.Sprintf("sandbox %q was not minted by this cluster", id)
		}
		return id, ""
	})
}

func keysOnOnePod(clusters []Cluster) []Finding {
	return duplicates("I2", "claim key", clusters, func(_ Cluster, p *corev1.Pod) (string, string) {
		if !live(p) {
			return "", ""
		}
		return p.Labels[v1alpha1.ClaimKeyHashLabelKey], ""
	})
}

// duplicates reports what is named by more than one Pod, and what is wrong with a single one.
func duplicates(invariant, what string, clusters []Cluster, name func(Cluster, *corev1.Pod) (id, wrong string)) []Finding {
	var found []Finding
	first := map[string]string{}
	for _, c := range clusters {
		for i := range c.Pods {
			p := &c.Pods[i]
			id, wrong := name(c, p)
			if wrong != "" {
				found = append(found, Finding{invariant, c.ID, podName(p), wrong})
			}
			if id == "" {
				continue
			}
			here := podName(p) + " in " + c.ID
			if other, ok := first[id]; ok {
				found = append(found, Finding{invariant, c.ID, podName(p), fmt.Sprintf("%s %s is also on %s", what, id, other)})
				continue
			}
			first[id] = here
		}
	}
	return found
}

var identityLabels = []string{
	v1alpha1.SandboxIDLabelKey, v1alpha1.ClaimKeyHashLabelKey, v1alpha1.LabelTeam, v1alpha1.LabelUser,
}

var identityAnnotations = []string{
	v1alpha1.SandboxIDAnnotationKey, v1alpha1.ClaimKeyAnnotationKey, v1alpha1.SandboxMetadataAnnotationKey,
	v1alpha1.SandboxPostStartHooksAnnotationKey, v1alpha1.LabelTeam, v1alpha1.LabelUser,
}

// idleIsClean finds identity on idle Pods. An annotation of "" reads as absent.
func idleIsClean(cluster string, p *corev1.Pod) []Finding {
	if phase(p) != v1alpha1.SandboxPhaseIdle {
		return nil
	}
	var left []string
	for _, key := range identityLabels {
		if p.Labels[key] != "" {
			left = append(left, key)
		}
	}
	for _, key := range identityAnnotations {
		if p.Annotations[key] != "" && !slices.Contains(left, key) {
			left = append(left, key)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return []Finding{{"I13", cluster, podName(p), "is idle and carries " + strings.Join(left, ", ")}}
}

func envObject(e *v1alpha1.SandboxEnv) string { return "env " + e.Namespace + "/" + e.Name }

func localSegmentIsOwn(cluster string, e *v1alpha1.SandboxEnv) []Finding {
	var found []Finding
	for _, segment := range e.Status.Clusters {
		if segment.IsLocal != (segment.ClusterID == cluster) {
			found = append(found, Finding{"I3", cluster, envObject(e),
				fmt.Sprintf("segment %s has isLocal=%t", segment.ClusterID, segment.IsLocal)})
		}
	}
	return found
}

// foreignEqualsOwners compares every foreign segment with the one that its owner shows. A cluster that is not among
// those looked at is not judged, and neither is one whose Env does not exist any more.
func foreignEqualsOwners(clusters []Cluster) []Finding {
	type key struct{ cluster, env string }
	owners := map[key]v1alpha1.EnvClusterStatus{}
	for _, c := range clusters {
		for i := range c.Envs {
			for _, segment := range c.Envs[i].Status.Clusters {
				if segment.ClusterID == c.ID {
					owners[key{c.ID, envObject(&c.Envs[i])}] = segment
				}
			}
		}
	}
	var found []Finding
	for _, c := range clusters {
		for i := range c.Envs {
			e := &c.Envs[i]
			shown := map[string]v1alpha1.EnvClusterStatus{}
			for _, segment := range e.Status.Clusters {
				shown[segment.ClusterID] = segment
			}
			for _, other := range clusters {
				owner, has := owners[key{other.ID, envObject(e)}]
				segment, shows := shown[other.ID]
				switch {
				case other.ID == c.ID:
				case has && !shows:
					found = append(found, Finding{"I4", c.ID, envObject(e), "does not show the segment of " + other.ID})
				case !has && shows:
					found = append(found, Finding{"I4", c.ID, envObject(e), "shows a segment of " + other.ID + ", which has none"})
				case has && counts(owner) != counts(segment):
					found = append(found, Finding{"I4", c.ID, envObject(e),
						fmt.Sprintf("shows %s as %s, its owner says %s", other.ID, counts(segment), counts(owner))})
				}
			}
		}
	}
	return found
}

// counts is what a foreign segment carries of a local one: counts and state, no resources and no times.
func counts(s v1alpha1.EnvClusterStatus) string {
	members := make([]string, 0, len(s.ObservedMembers))
	for _, m := range s.ObservedMembers {
		members = append(members, fmt.Sprintf("%s:%s idle=%d running=%d desired=%d", m.Name, m.State, m.IdleCount, m.RunningCount, m.DesiredReplicas))
	}
	slices.Sort(members)
	return "[" + strings.Join(members, "; ") + "]"
}
