// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	jsondiff "gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/podtemplate"
)

// Snapshot is a member's frozen pool: the documents of status.snapshots[].{metadata,spec}. It holds documents, not Go types, because they
// are written into an Env, and Pod templates may have fields newer than this build.
type Snapshot struct {
	Labels, Annotations map[string]string
	Spec                map[string]any
}

// Has reports whether the member was rendered, given a cached Env. A Pod template without containers does not count. A snapshot may
// also come with the manifest, as in an Env that was exported from another cluster.
func Has(member *v1alpha1.EnvClusterMember) bool { return HasTemplate(&member.Spec) }

// HasTemplate reports whether Pods can be created.
func HasTemplate(spec *v1alpha1.SandboxPoolSpec) bool { return len(spec.Template.Spec.Containers) > 0 }

// Metadata returns the document of the member's metadata. It has both maps even if they are empty, because a later patch may add to them.
func (s *Snapshot) Metadata() map[string]any {
	return map[string]any{"labels": document(s.Labels), "annotations": document(s.Annotations)}
}

// SetReplicas sets the pool's replicas.
func (s *Snapshot) SetReplicas(n int32) { s.Spec["replicas"] = int64(n) }

// Key returns an identifier of a rendered member without its replicas: the Env's uid, the member, and a hash.
func (s *Snapshot) Key(env types.UID, member string) (string, error) {
	spec := maps.Clone(s.Spec)
	delete(spec, "replicas")
	content, err := json.Marshal([]any{s.Labels, s.Annotations, spec})
	if err != nil {
		return "", fmt.Errorf("encoding the snapshot of member %s: %w", member, err)
	}
	sum := sha256.Sum256(content)
	return fmt.Sprintf("%s/%s/%s", env, member, hex.EncodeToString(sum[:8])), nil
}

// Pool returns the pool of the snapshot.
func (s *Snapshot) Pool(namespace, name string) (*v1alpha1.SandboxPool, error) {
	content, err := json.Marshal(s.Spec)
	if err != nil {
		return nil, fmt.Errorf("encoding the spec of member %s: %w", name, err)
	}
	pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: merged(nil, s.Labels), Annotations: merged(nil, s.Annotations),
	}}
	if err := json.Unmarshal(content, &pool.Spec); err != nil {
		return nil, fmt.Errorf("reading the spec of member %s: %w", name, err)
	}
	return pool, nil
}

// Edit applies the difference of two pools to the snapshot's document, so that fields which Go types do not know are kept.
func (s *Snapshot) Edit(before, after *v1alpha1.SandboxPool) error {
	s.Labels, s.Annotations = merged(nil, after.Labels), merged(nil, after.Annotations)
	var content [3][]byte
	for i, value := range []any{before.Spec, after.Spec, s.Spec} {
		var err error
		if content[i], err = json.Marshal(value); err != nil {
			return fmt.Errorf("encoding a spec: %w", err)
		}
	}
	ops, err := jsondiff.CreatePatch(content[0], content[1])
	if err != nil || len(ops) == 0 {
		return err
	}
	body, err := json.Marshal(ops)
	if err != nil {
		return fmt.Errorf("encoding the edits: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return fmt.Errorf("reading the edits: %w", err)
	}
	options := jsonpatch.NewApplyOptions()
	// Go types have empty objects where the document has nothing.
	options.EnsurePathExistsOnAdd, options.AllowMissingPathOnRemove = true, true
	edited, err := patch.ApplyWithOptions(content[2], options)
	if err != nil {
		return fmt.Errorf("applying the edits: %w", err)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(edited, &spec); err != nil {
		return fmt.Errorf("reading the edited spec: %w", err)
	}
	s.Spec = spec
	return podtemplate.Check(spec)
}

// TakenBack returns the snapshot of a live pool: its spec as a document, and the keys that its lists name as the snapshot's. A pool without
// the lists contributes all keys except those known to be others'.
func TakenBack(pool *v1alpha1.SandboxPool, spec map[string]any, replicas int32) *Snapshot {
	s := &Snapshot{
		Labels:      frozenKeys(pool, pool.Labels, v1alpha1.SandboxManagedLabelKeysAnnotationKey),
		Annotations: frozenKeys(pool, pool.Annotations, v1alpha1.SandboxManagedAnnotationKeysAnnotationKey),
		Spec:        runtime.DeepCopyJSON(spec),
	}
	s.SetReplicas(replicas)
	return s
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

func document(m map[string]string) map[string]any {
	doc := make(map[string]any, len(m))
	for key, value := range m {
		doc[key] = value
	}
	return doc
}

// merged returns base with the entries of over, which replace equal keys. base may be nil; otherwise it is modified.
func merged(base, over map[string]string) map[string]string {
	if base == nil {
		base = make(map[string]string, len(over))
	}
	maps.Copy(base, over)
	return base
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
