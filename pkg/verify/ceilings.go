// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

// ceilingsHold checks that, where the hub divides maxReplicas among clusters, the sum of the rooms does not exceed it, and no cluster holds
// more than the hub counts. What a cluster held when it joined, or when maxReplicas was lowered, is counted but is not part of a room.
func ceilingsHold(s *Snapshot) []Finding {
	if s.Hub == nil {
		return nil
	}
	var found []Finding
	registered := s.Hub.registered()
	for _, e := range s.Hub.Envs {
		env := e.GetNamespace() + "/" + e.GetName()
		for _, a := range e.GetAllotments() {
			var rooms int64
			heard := true
			for _, share := range a.GetShares() {
				id := share.GetClusterId()
				rooms += int64(share.GetRoom())
				shown := registered[id]
				if shown == nil || shown.GetState() != sandboxv1.ClusterState_FRESH {
					heard = false // the cluster keeps its earlier room
					continue
				}
				if held, known := s.held(id, env, a.GetGroup()); known && !share.GetForgotten() && held > int64(share.GetMayHold()) {
					found = append(found, Finding{Invariant: "I9", Cluster: id, Object: "env " + env, passing: true, identity: "holds " + a.GetGroup(),
						Wrong:    fmt.Sprintf("holds %d of group %s", held, a.GetGroup()),
						Expected: fmt.Sprintf("at most %d, which the hub counts", share.GetMayHold())})
				}
			}
			if heard && rooms > int64(a.GetMaxReplicas()) {
				found = append(found, Finding{Invariant: "I9", Cluster: hubName, Object: "env " + env, passing: true, identity: "rooms " + a.GetGroup(),
					Wrong:    fmt.Sprintf("the rooms of group %s are %d together", a.GetGroup(), rooms),
					Expected: fmt.Sprintf("at most its maxReplicas, %d", a.GetMaxReplicas())})
			}
		}
	}
	return found
}

// held returns what a cluster holds of a group, and whether the cluster was looked at.
func (s *Snapshot) held(cluster, env, group string) (held int64, known bool) {
	for i := range s.Clusters {
		c := &s.Clusters[i]
		if c.ID != cluster {
			continue
		}
		live := map[string]int32{}
		for j := range c.Pods {
			if p := &c.Pods[j]; p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
				live[p.Namespace+"/"+p.Labels[v1alpha1.SandboxPoolLabelKey]]++
			}
		}
		for j := range c.Envs {
			e := &c.Envs[j]
			if envName(e) != env {
				continue
			}
			for _, m := range e.MembersOf(cluster) {
				if m.Config.ScalingGroup == group {
					held += int64(max(m.Spec.Replicas, live[e.Namespace+"/"+m.Name]))
				}
			}
			return held, true
		}
	}
	return 0, false
}
