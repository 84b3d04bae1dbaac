// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"maps"
	"slices"

	"navix.sh/atoll/api/v1alpha1"
)

// The snapshot of a member is in the Env's status.snapshots, unless the member's own spec states one. In both cases readers find it in the
// member: in typed Envs from the cache, and in documents with MemberDocument.

// FillMembers copies the snapshots of an Env's status into the members that state none. Cached Envs have already been filled.
func FillMembers(env *v1alpha1.SandboxEnv) {
	for i := range env.Status.Snapshots {
		frozen := &env.Status.Snapshots[i]
		if len(frozen.Spec.Template.Spec.Containers) == 0 {
			continue
		}
		for _, member := range env.MembersOf(frozen.ClusterID) {
			if member.Name != frozen.Name || len(member.Spec.Template.Spec.Containers) > 0 {
				continue
			}
			replicas := frozen.Spec.Replicas
			if member.StatesReplicas() {
				replicas = member.Spec.Replicas
			}
			member.Metadata, member.Spec = frozen.Metadata, frozen.Spec
			member.Spec.Replicas = replicas
		}
	}
}

// MemberDocument returns the document of a member, with its snapshot if there is one, given the documents of an Env and of the member in
// it. stated is true if the member itself has the snapshot.
func MemberDocument(env, member map[string]any, clusterID string) (filled map[string]any, stated bool) {
	filled = maps.Clone(member)
	spec, _ := member["spec"].(map[string]any)
	if HasContainers(spec) {
		return filled, true
	}
	frozen := snapshotDocument(env, clusterID, member["name"])
	if frozen == nil {
		return filled, false
	}
	frozenSpec, _ := frozen["spec"].(map[string]any)
	frozenSpec = maps.Clone(frozenSpec)
	if replicas, ok := spec["replicas"]; ok {
		frozenSpec["replicas"] = replicas
	}
	filled["spec"] = frozenSpec
	delete(filled, "metadata")
	if metadata, ok := frozen["metadata"]; ok {
		filled["metadata"] = metadata
	}
	return filled, false
}

// snapshotDocument returns the entry of a member in status.snapshots, or nil if there is none from which Pods can be created.
func snapshotDocument(env map[string]any, clusterID string, name any) map[string]any {
	all := snapshotDocuments(env)
	i := indexOf(all, clusterID, name)
	if i < 0 {
		return nil
	}
	one, _ := all[i].(map[string]any)
	if spec, _ := one["spec"].(map[string]any); !HasContainers(spec) {
		return nil
	}
	return one
}

// HasContainers reports whether Pods can be created from the document of a pool's spec.
func HasContainers(spec map[string]any) bool {
	template, _ := spec["template"].(map[string]any)
	pod, _ := template["spec"].(map[string]any)
	containers, _ := pod["containers"].([]any)
	return len(containers) > 0
}

// SnapshotIndex returns the index of a member in the document of an Env's status.snapshots, or -1.
func SnapshotIndex(env map[string]any, clusterID, name string) int {
	return indexOf(snapshotDocuments(env), clusterID, name)
}

func snapshotDocuments(env map[string]any) []any {
	status, _ := env["status"].(map[string]any)
	all, _ := status["snapshots"].([]any)
	return all
}

func indexOf(snapshots []any, clusterID string, name any) int {
	return slices.IndexFunc(snapshots, func(entry any) bool {
		one, _ := entry.(map[string]any)
		return one["clusterID"] == clusterID && one["name"] == name
	})
}
