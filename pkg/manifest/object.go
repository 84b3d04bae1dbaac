// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"navix.sh/atoll/api/v1alpha1"
)

// Object is a manifest.
type Object map[string]any

// Ref identifies an object in the catalogue.
type Ref struct{ Kind, Namespace, Name string }

// String returns KIND NAMESPACE/NAME in lower case.
func (r Ref) String() string {
	if r.Namespace == "" {
		return strings.ToLower(r.Kind) + " " + r.Name
	}
	return strings.ToLower(r.Kind) + " " + r.Namespace + "/" + r.Name
}

// Missing returns a message that the catalogue does not have an object, and how to add an Env.
func (r Ref) Missing() string {
	text := fmt.Sprintf("the catalogue has no %s", r)
	if r.Kind == EnvKind {
		text += fmt.Sprintf("; `atollctl envs import %s/%s` takes in one that was applied in the clusters", r.Namespace, r.Name)
	}
	return text
}

// Compare orders templates before the Envs that refer to them.
func (r Ref) Compare(other Ref) int {
	return cmp.Or(-cmp.Compare(r.Kind, other.Kind), cmp.Compare(r.Namespace, other.Namespace), cmp.Compare(r.Name, other.Name))
}

// Parse parses a manifest from JSON.
func Parse(data []byte) (Object, error) {
	o := Object{}
	if err := json.Unmarshal(data, (*map[string]any)(&o)); err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	return o, nil
}

// Encode writes a manifest as JSON, with its keys in order.
func (o Object) Encode() ([]byte, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", o.Ref(), err)
	}
	return data, nil
}

// Copy returns a deep copy.
func (o Object) Copy() Object { return runtime.DeepCopyJSON(o) }

func (o Object) text(key string) string {
	s, _ := o[key].(string)
	return s
}

func (o Object) object(keys ...string) Object {
	for _, key := range keys {
		o, _ = toObject(o[key])
	}
	return o
}

func toObject(v any) (Object, bool) {
	m, ok := v.(map[string]any)
	return m, ok
}

// Kind returns the kind that the manifest says it has.
func (o Object) Kind() string { return o.text("kind") }

// Name returns metadata.name.
func (o Object) Name() string { return o.object("metadata").text("name") }

// Namespace returns metadata.namespace.
func (o Object) Namespace() string { return o.object("metadata").text("namespace") }

// Ref names the object.
func (o Object) Ref() Ref { return Ref{o.Kind(), o.Namespace(), o.Name()} }

// Template returns the name of the template to which an Env refers.
func (o Object) Template() string { return o.object("spec", "templateRef").text("name") }

// Annotation returns the value of an annotation.
func (o Object) Annotation(key string) string { return o.object("metadata", "annotations").text(key) }

// Clusters returns the clusters for which an Env has segments, in order.
func (o Object) Clusters() (out []string) {
	for _, s := range o.segments() {
		out = append(out, s.text("clusterID"))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (o Object) segments() []Object { return o.object("spec").list("clusters") }

func (o Object) list(key string) (out []Object) {
	list, _ := o[key].([]any)
	for _, v := range list {
		if s, ok := toObject(v); ok {
			out = append(out, s)
		}
	}
	return out
}

// group returns the scaling group of a member, or "" if there is none.
func group(member Object) string {
	config, ok := toObject(member["config"])
	if !ok {
		return ""
	}
	if name, set := config["scalingGroup"].(string); set {
		return name
	}
	return defaultGroup
}

const defaultGroup = "default"

// kept are the metadata fields that a manifest may set.
var kept = []string{"name", "namespace", "labels", "annotations"}

// applied is the annotation that kubectl writes into an object. It is not part of a manifest.
const applied = "kubectl.kubernetes.io/last-applied-configuration"

// Clean returns only what the author of a manifest wrote: no status, no field that the API server sets, and no managed fields.
func (o Object) Clean() Object {
	out := o.Copy()
	delete(out, "status")
	out["apiVersion"] = cmp.Or(o.text("apiVersion"), v1alpha1.GroupVersion.String())
	metadata := out.object("metadata")
	for key := range metadata {
		if !slices.Contains(kept, key) {
			delete(metadata, key)
		}
	}
	drop(metadata, "annotations", applied, v1alpha1.CatalogAnnotationKey)
	drop(metadata, "labels", v1alpha1.LabelSyncSource)
	return out
}

// drop removes keys of a map in o, and the map if it becomes empty.
func drop(o Object, field string, keys ...string) {
	m, ok := toObject(o[field])
	if !ok {
		return
	}
	for _, key := range keys {
		delete(m, key)
	}
	if len(m) == 0 {
		delete(o, field)
	}
}
