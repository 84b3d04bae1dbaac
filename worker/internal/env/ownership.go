// SPDX-License-Identifier: Apache-2.0

package env

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/controllers"
)

// Managed fields are bookkeeping and no protection: they are read here only where every reading of them keeps what exists.

// replicasSetByOther reports that the member's spec.replicas was last written by somebody else.
func replicasSetByOther(env *v1alpha1.SandboxEnv, clusterID string, member *v1alpha1.EnvClusterMember) bool {
	for i := range env.ManagedFields {
		entry := &env.ManagedFields[i]
		path := append(memberPath(clusterID, member.Name), "f:spec", "f:replicas")
		if entry.Manager != controllers.FieldManager && owning(entry, path...) {
			return true
		}
	}
	return false
}

// poolReplicasSetByUs reports that the live pool's replicas are what we wrote, and nobody has changed them since.
func poolReplicasSetByUs(pool *v1alpha1.SandboxPool) bool {
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

// memberPath is where a member is in a set of managed fields. The list keys are JSON, as the API server writes them.
func memberPath(clusterID, member string) []string {
	return []string{
		"f:spec", "f:clusters", fmt.Sprintf(`k:{"clusterID":%q}`, clusterID),
		"f:members", fmt.Sprintf(`k:{"name":%q}`, member),
	}
}

// owning reports whether the entry has anything at or below path.
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
