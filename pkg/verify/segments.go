// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

// Field managers of the worker's two writers.
const (
	workerManager = "atoll-worker"
	syncManager   = "atoll-sync"
)

// segmentsHaveOneWriter checks that the worker owns the local segment, and the sync path the foreign ones.
func segmentsHaveOneWriter(s *Snapshot) []Finding {
	var found []Finding
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Envs {
			e := &c.Envs[j]
			wrong := func(expected, format string, args ...any) {
				found = append(found, Finding{Invariant: "I3", Cluster: c.ID, Object: envObject(e),
					Wrong: fmt.Sprintf(format, args...), Expected: expected})
			}
			for _, segment := range e.Status.Clusters {
				if segment.IsLocal != (segment.ClusterID == c.ID) {
					wrong("isLocal on "+c.ID+" alone", "segment %s has isLocal=%t", segment.ClusterID, segment.IsLocal)
				}
			}
			for _, id := range ownedSegments(e, syncManager) {
				if id == c.ID {
					wrong("no field of it to be "+syncManager+"'s", "%s owns fields of the local segment %s", syncManager, id)
				}
			}
			for _, id := range ownedSegments(e, workerManager) {
				if id != c.ID {
					wrong("no field of it to be "+workerManager+"'s", "%s owns fields of the foreign segment %s", workerManager, id)
				}
			}
		}
	}
	return found
}

// ownedSegments returns the clusters in whose status segments a manager owns fields.
func ownedSegments(e *v1alpha1.SandboxEnv, manager string) []string {
	var ids []string
	for _, entry := range e.ManagedFields {
		if entry.Manager != manager || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Status struct {
				Clusters map[string]json.RawMessage `json:"f:clusters"`
			} `json:"f:status"`
		}
		// Only the raw form has the bytes of the API server. A field set that cannot be parsed owns nothing.
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key := range fields.Status.Clusters {
			var item struct {
				ClusterID string `json:"clusterID"`
			}
			if raw, ok := strings.CutPrefix(key, "k:"); ok && json.Unmarshal([]byte(raw), &item) == nil && item.ClusterID != "" {
				ids = append(ids, item.ClusterID)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// segmentKey is one cluster's part of one Env.
type segmentKey struct{ cluster, env string }

// owners returns the local segments, in which each cluster reports about itself. A segment without members reports nothing.
func (s *Snapshot) owners() map[segmentKey]v1alpha1.EnvClusterStatus {
	out := map[segmentKey]v1alpha1.EnvClusterStatus{}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Envs {
			for _, segment := range c.Envs[j].Status.Clusters {
				if segment.ClusterID == c.ID && len(segment.ObservedMembers) > 0 {
					out[segmentKey{c.ID, envName(&c.Envs[j])}] = segment
				}
			}
		}
		for j := range c.Pools {
			if k, segment, alone := standsAlone(c, &c.Pools[j]); alone {
				out[k] = segment
			}
		}
	}
	return out
}

// standsAlone reports whether a pool belongs to no Env. If so, it also returns the pool's segment, which is that of an Env with the pool's
// name and this one member.
func standsAlone(c *Cluster, pool *v1alpha1.SandboxPool) (segmentKey, v1alpha1.EnvClusterStatus, bool) {
	k := segmentKey{c.ID, pool.Namespace + "/" + pool.Name}
	label := pool.Labels[v1alpha1.LabelEnv]
	if v1alpha1.HasEnvOwner(pool) || label != "" && label != pool.Name ||
		slices.ContainsFunc(c.Envs, func(e v1alpha1.SandboxEnv) bool { return envName(&e) == k.env }) {
		return k, v1alpha1.EnvClusterStatus{}, false
	}
	state := v1alpha1.ObservedMemberStateActive
	if pool.DeletionTimestamp != nil {
		state = v1alpha1.ObservedMemberStateMissing
	}
	return k, v1alpha1.EnvClusterStatus{ClusterID: c.ID, ObservedMembers: []v1alpha1.EnvObservedMember{{
		Name: pool.Name, State: state, IdleCount: pool.Status.IdleReplicas,
		RunningCount: pool.Status.RunningReplicas + pool.Status.StartingReplicas, DesiredReplicas: pool.Spec.Replicas,
	}}}, true
}

// foreignEqualsOwners compares every foreign segment with the owner's. It skips clusters that were not read, and clusters that the hub does
// not hear from, whose last known segment other clusters show.
func foreignEqualsOwners(s *Snapshot) []Finding {
	if s.hubLost() {
		return nil
	}
	told := func(string) bool { return true }
	if s.Hub != nil {
		registered := s.Hub.registered()
		told = func(id string) bool { return current(registered[id]) }
	}
	owners := s.owners()
	var found []Finding
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Envs {
			e := &c.Envs[j]
			if e.DeletionTimestamp != nil || !told(c.ID) {
				continue
			}
			shown := map[string]v1alpha1.EnvClusterStatus{}
			for _, segment := range e.Status.Clusters {
				if len(segment.ObservedMembers) > 0 {
					shown[segment.ClusterID] = segment
				}
			}
			for k := range s.Clusters {
				other := s.Clusters[k].ID
				if other == c.ID || !told(other) {
					continue
				}
				owner, has := owners[segmentKey{other, envName(e)}]
				segment, shows := shown[other]
				f := Finding{Invariant: "I4", Cluster: c.ID, Object: envObject(e), passing: true}
				switch {
				case has && !shows:
					f.Wrong, f.Expected = "does not show the segment of "+other, summary(owner)
				case !has && shows:
					f.Wrong, f.Expected = "shows a segment of "+other, "none, as in "+other+" itself"
				case has && !alike(owner, segment):
					f.Wrong, f.Expected = "shows "+other+" as "+summary(segment), summary(owner)+", as its owner says"
				default:
					continue
				}
				found = append(found, f)
			}
		}
	}
	return found
}

// total is the prefix of the name of a member that represents several members, in a segment that was collapsed to fit.
const total = "total:"

// alike compares the parts of a local segment that a foreign one carries: counts and state, no resources and no times.
func alike(owner, shown v1alpha1.EnvClusterStatus) bool {
	if slices.ContainsFunc(shown.ObservedMembers, func(m v1alpha1.EnvObservedMember) bool { return strings.HasPrefix(m.Name, total) }) {
		return sums(owner) == sums(shown)
	}
	return summary(owner) == summary(shown)
}

func sums(s v1alpha1.EnvClusterStatus) (c [3]int32) {
	for _, m := range s.ObservedMembers {
		c[0], c[1], c[2] = c[0]+m.IdleCount, c[1]+m.RunningCount, c[2]+m.DesiredReplicas
	}
	return c
}

func summary(s v1alpha1.EnvClusterStatus) string {
	members := make([]string, 0, len(s.ObservedMembers))
	for _, m := range s.ObservedMembers {
		members = append(members, member(m.Name, string(m.State), m.IdleCount, m.RunningCount, m.DesiredReplicas))
	}
	return join(members)
}

func member(name, state string, idle, running, desired int32) string {
	return fmt.Sprintf("%s:%s idle=%d running=%d desired=%d", name, state, idle, running, desired)
}

func join(members []string) string {
	slices.Sort(members)
	return "[" + strings.Join(members, "; ") + "]"
}

// hubEqualsOwners checks that the merged view contains every owner's segment unchanged, and none without an owner.
func hubEqualsOwners(s *Snapshot) []Finding {
	if s.Hub == nil {
		return nil
	}
	registered, owners := s.Hub.registered(), s.owners()
	merged := map[segmentKey]string{}
	for _, e := range s.Hub.Envs {
		for _, c := range e.GetClusters() {
			if len(c.GetMembers()) > 0 {
				merged[segmentKey{c.GetClusterId(), e.GetNamespace() + "/" + e.GetName()}] = hubSummary(c)
			}
		}
	}
	var found []Finding
	differs := func(invariant string, k segmentKey, wrong, expected string) {
		found = append(found, Finding{Invariant: invariant, Cluster: k.cluster, Object: "env " + k.env, Wrong: wrong, Expected: expected,
			passing: true})
	}
	for i := range s.Clusters {
		id := s.Clusters[i].ID
		if !current(registered[id]) {
			continue
		}
		for k, owner := range owners {
			if k.cluster != id {
				continue
			}
			shown, ok := merged[k]
			switch {
			case !ok:
				differs("I5", k, "the hub does not show this cluster's part", summary(owner)+"; nothing goes without word of its owner")
			case shown != summary(owner):
				differs("I4", k, "the hub shows "+shown, summary(owner)+", as its owner says")
			}
		}
		for k := range merged {
			if _, ok := owners[k]; !ok && k.cluster == id {
				differs("I4", k, "the hub shows a part of "+id, "none: "+id+" has no such Env, or no part of it")
			}
		}
	}
	return found
}

func hubSummary(c *sandboxv1.EnvCluster) string {
	members := make([]string, 0, len(c.GetMembers()))
	for _, m := range c.GetMembers() {
		members = append(members, member(m.GetName(), m.GetState(), m.GetIdle(), m.GetRunning(), m.GetDesired()))
	}
	return join(members)
}

// registrationsEnd checks that a removed cluster appears nowhere.
func registrationsEnd(s *Snapshot) []Finding {
	if s.Hub == nil {
		return nil
	}
	registered := s.Hub.registered()
	var found []Finding
	shows := func(cluster, object, id string) {
		if registered[id] == nil {
			found = append(found, Finding{Invariant: "I4", Cluster: cluster, Object: object, passing: true,
				Wrong: "shows a segment of " + id, Expected: "none: the hub knows no such cluster, or no longer"})
		}
	}
	for _, e := range s.Hub.Envs {
		for _, c := range e.GetClusters() {
			shows(hubName, "env "+e.GetNamespace()+"/"+e.GetName(), c.GetClusterId())
		}
	}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		if !current(registered[c.ID]) {
			continue
		}
		for j := range c.Envs {
			for _, segment := range c.Envs[j].Status.Clusters {
				if segment.ClusterID != c.ID {
					shows(c.ID, envObject(&c.Envs[j]), segment.ClusterID)
				}
			}
		}
	}
	return found
}

// segmentsAreTrue checks that the local segment equals the content of the cluster, with or without a hub.
func segmentsAreTrue(s *Snapshot) []Finding {
	var found []Finding
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Envs {
			e := &c.Envs[j]
			if e.DeletionTimestamp != nil {
				continue
			}
			at := slices.IndexFunc(e.Status.Clusters, func(s v1alpha1.EnvClusterStatus) bool { return s.ClusterID == c.ID })
			if at < 0 {
				if hasPart(e, c.ID) {
					found = append(found, Finding{Invariant: "I8", Cluster: c.ID, Object: envObject(e), passing: true,
						Wrong: "has members here and no segment of this cluster", Expected: "the worker to write one"})
				}
				continue
			}
			for _, m := range e.Status.Clusters[at].ObservedMembers {
				if says, is := memberSays(m), memberIs(c, e, m); says != is {
					found = append(found, Finding{Invariant: "I8", Cluster: c.ID, Object: envObject(e), passing: true,
						Wrong: "its segment says " + says, Expected: is + ", as pool and Pods are"})
				}
			}
		}
	}
	return found
}

func hasPart(e *v1alpha1.SandboxEnv, cluster string) bool {
	return slices.ContainsFunc(e.Spec.Clusters, func(c v1alpha1.EnvClusterSpec) bool { return c.ClusterID == cluster && len(c.Members) > 0 })
}

func memberSays(m v1alpha1.EnvObservedMember) string {
	if m.State == v1alpha1.ObservedMemberStateMissing {
		return m.Name + " is missing"
	}
	return fmt.Sprintf("%s idle=%d running=%d replicas=%d", m.Name, m.IdleCount, m.RunningCount, m.CurrentReplicas)
}

// memberIs computes the segment's entry from the member's pool and the pool's Pods.
func memberIs(c *Cluster, e *v1alpha1.SandboxEnv, m v1alpha1.EnvObservedMember) string {
	pool := poolOf(c, e.Namespace, m.Name)
	switch {
	case pool == nil, pool.DeletionTimestamp != nil:
		return m.Name + " is missing"
	case pool.Labels[v1alpha1.LabelEnv] != e.Name:
		return memberSays(m) // the pool of this name has another owner; the Env's conditions report it
	}
	var idle, running int
	for i := range c.Pods {
		p := &c.Pods[i]
		if p.Namespace != pool.Namespace || p.Labels[v1alpha1.SandboxPoolLabelKey] != pool.Name || p.DeletionTimestamp != nil {
			continue
		}
		switch phase(p) {
		case v1alpha1.SandboxPhaseIdle:
			idle++
		case v1alpha1.SandboxPhaseRunning:
			running++
		}
	}
	return fmt.Sprintf("%s idle=%d running=%d replicas=%d", m.Name, idle, running, pool.Spec.Replicas)
}
