// SPDX-License-Identifier: Apache-2.0

package env

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/podtemplate"
)

// wantedLabels are the labels of a member's pool. Those that tie it to its Env are not in the snapshot: they follow the
// Env's name and the member's config as they are now.
func wantedLabels(envName string, member *v1alpha1.EnvClusterMember) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, member.Metadata.Labels)
	labels[v1alpha1.LabelEnv] = envName
	labels[v1alpha1.ManagedByLabelKey] = v1alpha1.ManagedBySandboxAPIServer
	delete(labels, v1alpha1.LabelScalingGroup)
	if group := member.Config.ScalingGroup; group != "" {
		labels[v1alpha1.LabelScalingGroup] = group
	}
	return labels
}

// wantedAnnotations are those of the snapshot, and two that list which keys on the pool are the snapshot's: others may
// put keys of their own on a pool, which must be neither removed nor taken into a snapshot.
func wantedAnnotations(member *v1alpha1.EnvClusterMember) map[string]string {
	annotations := map[string]string{}
	maps.Copy(annotations, member.Metadata.Annotations)
	annotations[v1alpha1.SandboxManagedLabelKeysAnnotationKey] = keyList(member.Metadata.Labels)
	annotations[v1alpha1.SandboxManagedAnnotationKeysAnnotationKey] = keyList(member.Metadata.Annotations)
	return annotations
}

func keyList(m map[string]string) string {
	// A list of strings can always be encoded.
	content, _ := json.Marshal(append([]string{}, sortedKeys(m)...))
	return string(content)
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// surplus are the keys that a pool has as a member's and should not: of the snapshot before, or another scaling group.
func surplusLabels(pool *v1alpha1.SandboxPool, wanted map[string]string) []string {
	candidates := append(keysListed(pool, v1alpha1.SandboxManagedLabelKeysAnnotationKey), v1alpha1.LabelScalingGroup)
	return surplus(pool.Labels, candidates, wanted)
}

func surplusAnnotations(pool *v1alpha1.SandboxPool, wanted map[string]string) []string {
	return surplus(pool.Annotations, keysListed(pool, v1alpha1.SandboxManagedAnnotationKeysAnnotationKey), wanted)
}

func surplus(have map[string]string, candidates []string, wanted map[string]string) []string {
	var keys []string
	for _, key := range candidates {
		_, there := have[key]
		if _, ok := wanted[key]; there && !ok {
			keys = append(keys, key)
		}
	}
	return keys
}

func keysListed(pool *v1alpha1.SandboxPool, annotation string) []string {
	var keys []string
	if err := json.Unmarshal([]byte(pool.Annotations[annotation]), &keys); err != nil {
		return nil
	}
	return keys
}

// drift is one point in which a live pool is not what its member's snapshot says.
type drift struct {
	what   string
	detail string
}

func (d drift) String() string {
	if d.detail == "" {
		return d.what
	}
	return d.what + " (" + d.detail + ")"
}

func driftOf(env *v1alpha1.SandboxEnv, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) []drift {
	labels, annotations := wantedLabels(env.Name, member), wantedAnnotations(member)
	points := driftOfKeys("label", pool.Labels, labels, surplusLabels(pool, labels))
	points = append(points, driftOfKeys("annotation", pool.Annotations, annotations, surplusAnnotations(pool, annotations))...)
	return append(points, driftOfSpec(&pool.Spec, &member.Spec)...)
}

func driftOfKeys(kind string, have, wanted map[string]string, surplus []string) []drift {
	var points []drift
	for _, key := range sortedKeys(wanted) {
		if value, ok := have[key]; !ok {
			points = append(points, drift{kind + " " + key, "missing"})
		} else if value != wanted[key] {
			points = append(points, drift{kind + " " + key, fmt.Sprintf("%q instead of %q", value, wanted[key])})
		}
	}
	for _, key := range surplus {
		points = append(points, drift{kind + " " + key, "to remove"})
	}
	return points
}

func driftOfSpec(have, wanted *v1alpha1.SandboxPoolSpec) []drift {
	var points []drift
	if have.Replicas != wanted.Replicas {
		points = append(points, drift{"replicas", fmt.Sprintf("%d instead of %d", have.Replicas, wanted.Replicas)})
	}
	for _, field := range []struct {
		name string
		same bool
	}{
		{"templateName", have.TemplateName == wanted.TemplateName},
		{"defaultStartupTimeout", equality.Semantic.DeepEqual(have.DefaultStartupTimeout, wanted.DefaultStartupTimeout)},
		{"defaultIdleTimeout", equality.Semantic.DeepEqual(have.DefaultIdleTimeout, wanted.DefaultIdleTimeout)},
		{"podCreationImagePolicy", have.PodCreationImagePolicy == wanted.PodCreationImagePolicy},
		{"template", equality.Semantic.DeepEqual(have.Template, wanted.Template)},
		{"idleImage", have.IdleImage == wanted.IdleImage},
		{"runtimes", sameJSON(have.Runtimes, wanted.Runtimes)},
	} {
		if !field.same {
			points = append(points, drift{what: field.name})
		}
	}
	return points
}

// sameJSON compares what the JSON says: what is kept as bytes, as a runtime's config is, may differ in spacing.
func sameJSON[T any](a, b T) bool {
	if equality.Semantic.DeepEqual(a, b) {
		return true
	}
	decode := func(value T) (decoded any) {
		content, err := json.Marshal(value)
		if err != nil || json.Unmarshal(content, &decoded) != nil {
			return err
		}
		return decoded
	}
	return reflect.DeepEqual(decode(a), decode(b))
}

// stampedPool is the document of a new pool made from a member's snapshot, whose spec is given as a document.
func stampedPool(env *v1alpha1.SandboxEnv, member *v1alpha1.EnvClusterMember, spec map[string]any) map[string]any {
	owner := metav1.NewControllerRef(env, v1alpha1.GroupVersion.WithKind(v1alpha1.SandboxEnvOwnerKind))
	return map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "SandboxPool",
		"metadata": map[string]any{
			"name":        member.Name,
			"namespace":   env.Namespace,
			"labels":      document(wantedLabels(env.Name, member)),
			"annotations": document(wantedAnnotations(member)),
			"ownerReferences": []any{map[string]any{
				"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": string(owner.UID),
				"controller": true, "blockOwnerDeletion": true,
			}},
		},
		"spec": spec,
	}
}

// takenBack is the snapshot that a live pool was stamped from: its spec as a document, and those keys that are listed as
// a snapshot's. A pool without the lists gives all keys but those that are known to be others'.
func takenBack(pool *v1alpha1.SandboxPool, spec map[string]any, replicas int32) *snapshot {
	spec["replicas"] = int64(replicas)
	return &snapshot{
		labels:      frozenKeys(pool, pool.Labels, v1alpha1.SandboxManagedLabelKeysAnnotationKey),
		annotations: frozenKeys(pool, pool.Annotations, v1alpha1.SandboxManagedAnnotationKeysAnnotationKey),
		spec:        spec,
	}
}

func frozenKeys(pool *v1alpha1.SandboxPool, have map[string]string, listedIn string) map[string]string {
	kept := map[string]string{}
	if _, listed := pool.Annotations[listedIn]; listed {
		for _, key := range keysListed(pool, listedIn) {
			if value, ok := have[key]; ok {
				kept[key] = value
			}
		}
		return kept
	}
	for key, value := range have {
		if !slices.Contains(stampedKeys, key) && !podtemplate.OfTool(key) {
			kept[key] = value
		}
	}
	return kept
}

// stampedKeys are on pools and never in a snapshot: they follow the Env, or change on their own.
var stampedKeys = []string{
	v1alpha1.LabelEnv, v1alpha1.LabelScalingGroup, v1alpha1.ManagedByLabelKey, v1alpha1.LastSandboxCreateTimeAnnotationKey,
}
