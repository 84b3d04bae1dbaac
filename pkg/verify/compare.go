// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

// vanished returns the sandboxes that were on live Pods of a cluster in the earlier snapshot and are on none in the later one. They have
// ended, or were lost. It skips clusters that the later snapshot does not contain.
func vanished(before, after *Snapshot) map[string]claimed {
	looked, there := map[string]bool{}, map[string]bool{}
	for i := range after.Clusters {
		c := &after.Clusters[i]
		looked[c.ID] = true
		for j := range c.Pods {
			if id := c.Pods[j].Labels[v1alpha1.SandboxIDLabelKey]; id != "" {
				there[id] = true
			}
		}
	}
	out := map[string]claimed{}
	for _, c := range before.live() {
		if looked[c.cluster.ID] && !there[c.id()] && c.id() != "" {
			out[c.id()] = c
		}
	}
	return out
}

// Compare returns the violations that only two snapshots show: what was lost, what went back, and what stayed on a Pod after its tenant
// changed.
func Compare(before, after *Snapshot) []Finding {
	var found []Finding
	if after.Hub != nil {
		for id, c := range vanished(before, after) {
			record, asked := after.Hub.Ended[id]
			if asked && record.GetPhase() != sandboxv1.Phase_ENDED {
				found = append(found, Finding{Invariant: "I2", Cluster: c.cluster.ID, Object: "sandbox " + id, passing: true,
					Wrong: "was on " + podName(c.pod) + " and is gone without a record", Expected: "a record of its end at the hub"})
			}
		}
	}
	earlier := map[string]*Cluster{}
	for i := range before.Clusters {
		earlier[before.Clusters[i].ID] = &before.Clusters[i]
	}
	for i := range after.Clusters {
		c := &after.Clusters[i]
		was := earlier[c.ID]
		if was == nil {
			continue
		}
		if c.Incarnation < was.Incarnation {
			found = append(found, Finding{Invariant: "I5", Cluster: c.ID, Object: "configmap " + stateName,
				Wrong:    fmt.Sprintf("the incarnation went from %d back to %d", was.Incarnation, c.Incarnation),
				Expected: "it only to rise; was etcd restored?"})
		}
		found = append(found, comparePods(was, c)...)
	}
	return order(append(found, compareHubs(before.Hub, after.Hub)...))
}

func comparePods(before, after *Cluster) []Finding {
	had := make(map[types.UID]*corev1.Pod, len(before.Pods))
	holder := map[string]*corev1.Pod{}
	for i := range before.Pods {
		p := &before.Pods[i]
		had[p.UID] = p
		if busy(p) {
			holder[p.Labels[v1alpha1.SandboxIDLabelKey]] = p
		}
	}
	var found []Finding
	for i := range after.Pods {
		p := &after.Pods[i]
		if was := had[p.UID]; was != nil {
			if id := tenantsContainer(was, p); id != "" {
				found = append(found, Finding{Invariant: "I13", Cluster: after.ID, Object: podName(p),
					Wrong:    "is idle with container " + id + ", which a tenant had",
					Expected: "every container to be another one than at the release"})
			}
		}
		id := p.Labels[v1alpha1.SandboxIDLabelKey]
		if other := holder[id]; id != "" && busy(p) && other != nil && other.UID != p.UID {
			found = append(found, Finding{Invariant: "I1", Cluster: after.ID, Object: podName(p),
				Wrong: "carries sandbox " + id + ", which was on " + podName(other), Expected: "a sandbox to stay on its Pod"})
		}
	}
	return found
}

func compareHubs(before, after *Hub) []Finding {
	if before == nil || after == nil {
		return nil
	}
	var found []Finding
	now := after.registered()
	for _, was := range before.Clusters {
		c := now[was.GetId()]
		switch {
		case c == nil: // an operator probably removed it
		case c.GetUid() != was.GetUid() && was.GetUid() != "":
			found = append(found, Finding{Invariant: "I12", Cluster: c.GetId(), Object: "cluster " + c.GetId(),
				Wrong: "its name went from uid " + was.GetUid() + " to " + c.GetUid(), Expected: "a name to stay with its cluster"})
		case c.GetIncarnation() < was.GetIncarnation():
			found = append(found, Finding{Invariant: "I5", Cluster: c.GetId(), Object: "cluster " + c.GetId(),
				Wrong:    fmt.Sprintf("the hub went from its incarnation %d back to %d", was.GetIncarnation(), c.GetIncarnation()),
				Expected: "an older incarnation to be believed no more"})
		}
	}
	return found
}
