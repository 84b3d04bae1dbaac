// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the Kubernetes API of the group agents.navix.sh: SandboxEnv, SandboxPool and SandboxTemplate, and every label,
// annotation, finalizer, condition type and reason of Atoll.
//
// In: Kubernetes API packages only, so every package may import it. Out: the Go types and what is generated from their markers
// (generate.go).
//
//   - JSON names and omitempty stay; because manifests exist. A typed struct drops `scalingGroup: ""` (no autoscaling),
//     `idleThresholdSeconds: 0` (off) and the like, for which the API server fills in defaults. So never write an Env with one: send an
//     apply configuration or raw JSON. Defaults live in the schema, not in Go code.
//   - Pod templates and runtime configs have no schema. Unknown fields stay, but not through the Go types; CEL cannot see inside.
//   - A template that is no Pod template (`containers: 5`) is stored, and fails every typed list and informer that it is in: readers must
//     expect that.
//   - A member without a config has no scaling group; one with a config has "default" unless it names another.
//   - The API server refuses a user's mistakes and names the field. List rules have a cost budget; hence 256 clusters, 32 members a
//     cluster, 32 groups. Rules that another writer could break ignore what the request did not change.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="applyconfiguration"
// +groupName=agents.navix.sh
package v1alpha1
