// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"io"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Objects are a chart's rendered objects, in order.
type Objects []*unstructured.Unstructured

func decode(manifests string) (Objects, error) {
	var objects Objects
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading what helm rendered: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := checkTypes(object); err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		objects = append(objects, object)
	}
}

// checkTypes refuses a workload that an API server would not decode: an argument that YAML takes for a map, or an unknown field.
func checkTypes(object *unstructured.Unstructured) error {
	typed := map[string]any{"Deployment": &appsv1.Deployment{}, "StatefulSet": &appsv1.StatefulSet{}, "Job": &batchv1.Job{}}[object.GetKind()]
	if typed == nil {
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true)
}

// Names lists the objects as Kind/name, in order.
func (o Objects) Names() []string {
	var names []string
	for _, object := range o {
		names = append(names, object.GetKind()+"/"+object.GetName())
	}
	return names
}

// Manifest returns the objects as YAML for kubectl.
func (o Objects) Manifest() (string, error) {
	var text strings.Builder
	for _, object := range o {
		raw, err := yaml.Marshal(object.Object)
		if err != nil {
			return "", fmt.Errorf("writing %s/%s: %w", object.GetKind(), object.GetName(), err)
		}
		fmt.Fprintf(&text, "---\n%s", raw)
	}
	return text.String(), nil
}

// Find returns the object of a kind and name; nil if it does not exist.
func (o Objects) Find(kind, name string) *unstructured.Unstructured {
	for _, object := range o {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	return nil
}

// As decodes the object of a kind and name into a Go type, and refuses unknown fields.
func As[T any](o Objects, kind, name string) (*T, error) {
	object := o.Find(kind, name)
	if object == nil {
		return nil, fmt.Errorf("no %s/%s among %s", kind, name, strings.Join(o.Names(), ", "))
	}
	raw, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("writing %s/%s: %w", kind, name, err)
	}
	typed := new(T)
	if err := yaml.UnmarshalStrict(raw, typed); err != nil {
		return nil, fmt.Errorf("reading %s/%s: %w", kind, name, err)
	}
	return typed, nil
}
