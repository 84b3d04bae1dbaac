// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/controllers"
)

// Interfered reports whether another writer set a member's replicas while the autoscaler sets them: the Env's value is not ours, and the
// live pool still has ours. That happens when an old object is put back whole. If another writer set both, the Env's value counts, as
// everywhere.
//
// Managed fields are bookkeeping and no protection. They are read only here, and every interpretation of them keeps what exists.
func Interfered(env *v1alpha1.SandboxEnv, clusterID string, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) bool {
	group := env.ScalingGroup(member.Config.ScalingGroup)
	return member.Spec.Replicas != pool.Spec.Replicas && group != nil && group.Enabled &&
		setByOther(env, clusterID, member) && PoolSetByUs(pool)
}

// setByOther reports whether another writer last wrote the member's spec.replicas.
func setByOther(env *v1alpha1.SandboxEnv, clusterID string, member *v1alpha1.EnvClusterMember) bool {
	path := replicasPath(clusterID, member.Name)
	for i := range env.ManagedFields {
		entry := &env.ManagedFields[i]
		if entry.Manager != controllers.FieldManager && owning(entry, path...) {
			return true
		}
	}
	return false
}

// applied reports whether the member's spec.replicas come from a manifest that was applied whole: their last writer wrote the rest of the
// spec as well. Such a writer may do so as often as it likes. Server-side apply is excluded, because it reports the conflict to its user,
// who has forced it.
func applied(env *v1alpha1.SandboxEnv, clusterID string, member *v1alpha1.EnvClusterMember) bool {
	path := replicasPath(clusterID, member.Name)
	for i := range env.ManagedFields {
		entry := &env.ManagedFields[i]
		if entry.Manager != controllers.FieldManager && entry.Operation == metav1.ManagedFieldsOperationUpdate &&
			owning(entry, path...) && owning(entry, "f:spec", "f:templateRef") {
			return true
		}
	}
	return false
}

// PoolSetByUs reports whether we wrote the live pool's replicas and they have not changed since.
func PoolSetByUs(pool *v1alpha1.SandboxPool) bool {
	ours := false
	for i := range pool.ManagedFields {
		entry := &pool.ManagedFields[i]
		if !owning(entry, "f:spec", "f:replicas") {
			continue
		}
		if entry.Manager != controllers.FieldManager || entry.Subresource != "" {
			return false
		}
		ours = true
	}
	return ours
}

// replicasPath is the path of a member's spec.replicas in a set of managed fields. The list keys are JSON, as the API server writes them.
func replicasPath(clusterID, member string) []string {
	return []string{
		"f:spec", "f:clusters", fmt.Sprintf(`k:{"clusterID":%q}`, clusterID),
		"f:members", fmt.Sprintf(`k:{"name":%q}`, member), "f:spec", "f:replicas",
	}
}

// owning reports whether the entry owns a field at or below path.
func owning(entry *metav1.ManagedFieldsEntry, path ...string) bool {
	if entry.FieldsV1 == nil {
		return false
	}
	content := json.RawMessage(entry.FieldsV1.GetRawBytes())
	for _, key := range path {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(content, &fields); err != nil {
			return false
		}
		next, ok := fields[key]
		if !ok {
			return false
		}
		content = next
	}
	return true
}
