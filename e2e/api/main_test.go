// SPDX-License-Identifier: Apache-2.0

// Package api_test tests the CRDs of agents.navix.sh on a real API server: defaults, pruning, and accepted and refused objects.
// Requests are raw JSON or apply configurations, never the Go structs; because their omitempty drops the zeros under test.
package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
)

// The plane is shared by all tests; each has its own namespace in it.
var (
	east   *plane.Plane
	client dynamic.Interface
	core   kubernetes.Interface
)

var (
	envs      = v1alpha1.GroupVersion.WithResource("sandboxenvs")
	pools     = v1alpha1.GroupVersion.WithResource("sandboxpools")
	templates = v1alpha1.GroupVersion.WithResource("sandboxtemplates")
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// The first run on a machine builds Kubernetes.
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	set, err := plane.Up(ctx, plane.Options{}, "east")
	if err != nil {
		return 1, err
	}
	defer func() {
		if downErr := set.Down(ctx); err == nil {
			err = downErr
		}
	}()
	east = set.Plane("east")
	config := east.Config()
	config.QPS = -1
	if client, err = dynamic.NewForConfig(config); err != nil {
		return 1, fmt.Errorf("building a dynamic client: %w", err)
	}
	if core, err = kubernetes.NewForConfig(config); err != nil {
		return 1, fmt.Errorf("building a client: %w", err)
	}
	return m.Run(), nil
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newObjects are those of a kind, in a namespace of the test.
func newObjects(t *testing.T, kind schema.GroupVersionResource) (context.Context, dynamic.ResourceInterface) {
	t.Helper()
	ctx := testContext(t)
	return ctx, client.Resource(kind).Namespace(newNamespace(ctx, t))
}

func newNamespace(ctx context.Context, t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "api-"}}
	namespace, err := core.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	must.Succeed(t, err)
	return namespace.Name
}

// manifest reads a file of testdata.
func manifest(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	must.Succeed(t, err)
	return parse(t, string(text))
}

// parse reads one object from YAML.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	must.Succeed(t, err)
	obj := &unstructured.Unstructured{}
	must.Succeed(t, obj.UnmarshalJSON(raw))
	return obj
}

// patched applies a JSON patch, written in YAML, to a copy of obj.
func patched(t *testing.T, obj *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()
	decoded, err := jsonpatch.DecodePatch(toJSON(t, patch))
	if err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	raw, err := obj.MarshalJSON()
	must.Succeed(t, err)
	if raw, err = decoded.Apply(raw); err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	result := &unstructured.Unstructured{}
	must.Succeed(t, result.UnmarshalJSON(raw))
	return result
}

func toJSON(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return raw
}

func create(ctx context.Context, t *testing.T, r dynamic.ResourceInterface, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := r.Create(ctx, obj, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	must.Succeed(t, err)
	return created
}

// jsonPatch patches obj, or a subresource of it, by a JSON patch written in YAML.
func jsonPatch(
	ctx context.Context, t *testing.T, r dynamic.ResourceInterface, name, patch string, subresources ...string,
) (*unstructured.Unstructured, error) {
	t.Helper()
	return r.Patch(ctx, name, types.JSONPatchType, toJSON(t, patch), metav1.PatchOptions{}, subresources...)
}

// mustPatch is jsonPatch that must succeed.
func mustPatch(
	ctx context.Context, t *testing.T, r dynamic.ResourceInterface, name, patch string, subresources ...string,
) *unstructured.Unstructured {
	t.Helper()
	got, err := jsonPatch(ctx, t, r, name, patch, subresources...)
	must.Succeed(t, err)
	return got
}

// apply sends an apply configuration, marshalled unchanged.
func apply(
	ctx context.Context, t *testing.T, r dynamic.ResourceInterface, manager, name string, configuration any, subresources ...string,
) *unstructured.Unstructured {
	t.Helper()
	raw, err := json.Marshal(configuration)
	must.Succeed(t, err)
	force := true
	options := metav1.PatchOptions{FieldManager: manager, Force: &force}
	applied, err := r.Patch(ctx, name, types.ApplyPatchType, raw, options, subresources...)
	must.Succeed(t, err)
	return applied
}

// at returns a value by a JSON pointer, and whether it exists.
func at(t *testing.T, obj *unstructured.Unstructured, pointer string) (value any, ok bool) {
	t.Helper()
	value = obj.Object
	for _, key := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		switch node := value.(type) {
		case map[string]any:
			if value, ok = node[key]; !ok {
				return nil, false
			}
		case []any:
			index, err := strconv.Atoi(key)
			if err != nil {
				t.Fatalf("%s: %v", pointer, err)
			}
			if index >= len(node) {
				return nil, false
			}
			value = node[index]
		default:
			return nil, false
		}
	}
	return value, true
}

// check compares values by JSON pointer. A nil stands for absence.
func check(t *testing.T, obj *unstructured.Unstructured, want map[string]any) {
	t.Helper()
	for pointer, value := range want {
		if n, ok := value.(int); ok {
			value = int64(n)
		}
		got, ok := at(t, obj, pointer)
		if !ok && value != nil {
			t.Errorf("%s is absent, want %v", pointer, value)
		} else if diff := cmp.Diff(value, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", pointer, diff)
		}
	}
}
