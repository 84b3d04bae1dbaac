// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/podtemplate"
)

// Annotations beyond a pool's limit are refused before they are frozen; because the pool could neither be created nor repaired.
func TestTooManyAnnotationsAreRefused(t *testing.T) {
	s := &Source{Env: &v1alpha1.SandboxEnv{}, Template: &podtemplate.Template{
		Name: "base", Annotations: map[string]string{"note": strings.Repeat("x", 100<<10)},
		Spec: map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main",
			"image": "x"}}}}},
	}}
	for size, fits := range map[int]bool{50 << 10: true, 100 << 10: false} {
		member := &v1alpha1.EnvClusterMember{Config: v1alpha1.EnvClusterMemberConfig{Annotations: map[string]string{"own": strings.Repeat("y",
			size)}}}
		_, err := s.Render(member, 1)
		if (err == nil) != fits || !fits && (!strings.Contains(err.Error(), "config.annotations") || len(err.Error()) > 300) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestEditsKeepUnknownFields: edits of plugins are made in the document, and fields that Go types do not know stay.
func TestEditsKeepUnknownFields(t *testing.T) {
	s := &Snapshot{Spec: map[string]any{"replicas": int64(1), "template": map[string]any{"spec": map[string]any{
		"futurePod": "x", "containers": []any{map[string]any{"name": "main", "image": "i", "futureContainer": map[string]any{"a": "b"}}},
	}}}}
	before, err := s.Pool("ns", "m")
	must.Succeed(t, err)
	after := before.DeepCopy()
	main := &after.Spec.Template.Spec.Containers[0]
	main.Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
	main.SecurityContext = &corev1.SecurityContext{Privileged: new(false)}
	main.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	after.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "j"}}
	must.Succeed(t, s.Edit(before, after))
	spec, _, _ := unstructured.NestedMap(s.Spec, "template", "spec")
	content, err := json.Marshal(spec)
	must.Succeed(t, err)
	text := string(content)
	for _, want := range []string{`"futurePod":"x"`, `"futureContainer":{"a":"b"}`, `"env":[{"name":"A","value":"1"}]`, `"privileged":false`,
		`"cpu":"1"`, `"name":"init"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}

// A change by hand of any field of a pool is found; because what is not found is not repaired.
func TestDriftKnowsEveryField(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.SandboxPoolSpec]()) {
		if field.Anonymous {
			continue
		}
		var wanted v1alpha1.SandboxPoolSpec
		fill(reflect.ValueOf(&wanted).Elem().FieldByIndex(field.Index))
		if found := driftOfSpec(&v1alpha1.SandboxPoolSpec{}, &wanted); len(found) != 1 {
			t.Errorf("%s: found %v, want one difference", field.Name, found)
		}
	}
}

// fill gives v a value other than its zero value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		fill(v.Field(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(1)
	}
}
