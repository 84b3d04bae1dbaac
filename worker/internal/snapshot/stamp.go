// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

// wantedLabels returns the labels of a member's pool. Those that tie it to its Env are not in the snapshot: they follow the Env's
// name and the member's current config.
func wantedLabels(envName string, member *v1alpha1.EnvClusterMember) map[string]string {
	labels := merged(nil, member.Metadata.Labels)
	labels[v1alpha1.LabelEnv] = envName
	labels[v1alpha1.ManagedByLabelKey] = v1alpha1.ManagedBySandboxAPIServer
	delete(labels, v1alpha1.LabelScalingGroup)
	if group := member.Config.ScalingGroup; group != "" {
		labels[v1alpha1.LabelScalingGroup] = group
	}
	return labels
}

// wantedAnnotations returns the snapshot's annotations, and two that list the snapshot's keys on the pool. Others may put their own keys on
// a pool, which must be neither removed nor taken into a snapshot.
func wantedAnnotations(member *v1alpha1.EnvClusterMember) map[string]string {
	annotations := merged(nil, member.Metadata.Annotations)
	annotations[v1alpha1.SandboxManagedLabelKeysAnnotationKey] = keyList(member.Metadata.Labels)
	annotations[v1alpha1.SandboxManagedAnnotationKeysAnnotationKey] = keyList(member.Metadata.Annotations)
	return annotations
}

func keyList(m map[string]string) string {
	// Encoding a list of strings does not fail.
	content, _ := json.Marshal(append([]string{}, sortedKeys(m)...))
	return string(content)
}

// surplusLabels returns the keys that the pool should not have: those of an earlier snapshot, or of another scaling group.
func surplusLabels(pool *v1alpha1.SandboxPool, wanted map[string]string) []string {
	candidates := append(keysListed(pool, v1alpha1.SandboxManagedLabelKeysAnnotationKey), v1alpha1.LabelScalingGroup)
	return surplus(pool.Labels, candidates, wanted)
}

func surplusAnnotations(pool *v1alpha1.SandboxPool, wanted map[string]string) []string {
	// What a pool allows comes only from its snapshot.
	candidates := append(keysListed(pool, v1alpha1.SandboxManagedAnnotationKeysAnnotationKey),
		v1alpha1.AllowedImagesAnnotationKey, v1alpha1.AllowedContainersAnnotationKey)
	return surplus(pool.Annotations, candidates, wanted)
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

// Replicas is Drift.What of spec.replicas.
const Replicas = "replicas"

// Drift is one difference between a live pool and its member's snapshot.
type Drift struct {
	What   string
	detail string
}

func (d Drift) String() string {
	if d.detail == "" {
		return d.What
	}
	return d.What + " (" + d.detail + ")"
}

// DriftOf returns all differences.
func DriftOf(env *v1alpha1.SandboxEnv, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) []Drift {
	labels, annotations := wantedLabels(env.Name, member), wantedAnnotations(member)
	points := driftOfKeys("label", pool.Labels, labels, surplusLabels(pool, labels))
	points = append(points, driftOfKeys("annotation", pool.Annotations, annotations, surplusAnnotations(pool, annotations))...)
	return append(points, driftOfSpec(&pool.Spec, &member.Spec)...)
}

func driftOfKeys(kind string, have, wanted map[string]string, surplus []string) []Drift {
	var points []Drift
	for _, key := range sortedKeys(wanted) {
		if value, ok := have[key]; !ok {
			points = append(points, Drift{kind + " " + key, "missing"})
		} else if value != wanted[key] {
			points = append(points, Drift{kind + " " + key, fmt.Sprintf("%q instead of %q", value, wanted[key])})
		}
	}
	for _, key := range surplus {
		points = append(points, Drift{kind + " " + key, "to remove"})
	}
	return points
}

func driftOfSpec(have, wanted *v1alpha1.SandboxPoolSpec) []Drift {
	var points []Drift
	if have.Replicas != wanted.Replicas {
		points = append(points, Drift{Replicas, fmt.Sprintf("%d instead of %d", have.Replicas, wanted.Replicas)})
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
		{"runtimes", sandboxcache.SameJSON(have.Runtimes, wanted.Runtimes)},
	} {
		if !field.same {
			points = append(points, Drift{What: field.name})
		}
	}
	return points
}

// NewPool returns the document of a new pool from a member's snapshot; spec is its spec as a document.
func NewPool(env *v1alpha1.SandboxEnv, member *v1alpha1.EnvClusterMember, spec map[string]any) map[string]any {
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

// Repair returns the merge patch that makes a live pool's document match its member's snapshot, or nil if it already matches. spec is the
// snapshot's spec as a document, and observed is the pool that the decision was about. The patch is bound to the pool's uid.
func Repair(
	live *unstructured.Unstructured, observed *v1alpha1.SandboxPool, env string, member *v1alpha1.EnvClusterMember, spec map[string]any,
) ([]byte, error) {
	wanted := live.DeepCopy()
	apply := func(have, wanted map[string]string, surplus []string) map[string]string {
		have = merged(have, wanted)
		for _, key := range surplus {
			delete(have, key)
		}
		return have
	}
	labels, annotations := wantedLabels(env, member), wantedAnnotations(member)
	wanted.SetLabels(apply(wanted.GetLabels(), labels, surplusLabels(observed, labels)))
	wanted.SetAnnotations(apply(wanted.GetAnnotations(), annotations, surplusAnnotations(observed, annotations)))
	wanted.Object["spec"] = spec
	return difference(live, wanted)
}

// difference returns the merge patch from one document to the other, bound to the pool's uid, or nil if they are equal.
func difference(live, wanted *unstructured.Unstructured) ([]byte, error) {
	before, err := json.Marshal(live)
	if err != nil {
		return nil, fmt.Errorf("encoding pool %s: %w", live.GetName(), err)
	}
	after, err := json.Marshal(wanted)
	if err != nil {
		return nil, fmt.Errorf("encoding pool %s: %w", live.GetName(), err)
	}
	diff, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("comparing pool %s with its snapshot: %w", live.GetName(), err)
	}
	var body map[string]any
	if err := json.Unmarshal(diff, &body); err != nil {
		return nil, fmt.Errorf("reading the patch of pool %s: %w", live.GetName(), err)
	}
	if len(body) == 0 {
		return nil, nil
	}
	metadata, _ := body["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"] = string(live.GetUID())
	body["metadata"] = metadata
	return json.Marshal(body)
}
