// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"navix.sh/atoll/api/v1alpha1"
)

// kinds are the custom resources, by the name of their CRD.
var kinds = map[string]reflect.Type{
	"sandboxenvs." + v1alpha1.GroupVersion.Group:      reflect.TypeFor[v1alpha1.SandboxEnv](),
	"sandboxpools." + v1alpha1.GroupVersion.Group:     reflect.TypeFor[v1alpha1.SandboxPool](),
	"sandboxtemplates." + v1alpha1.GroupVersion.Group: reflect.TypeFor[v1alpha1.SandboxTemplate](),
}

// compare returns the fields of this build's type that an installed CRD lacks. An API server drops such fields from writes.
func compare(crd *apiextensionsv1.CustomResourceDefinition, kind reflect.Type) *CRD {
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name == v1alpha1.GroupVersion.Version && v.Served && v.Schema != nil {
			missing := unknown(v.Schema.OpenAPIV3Schema, kind, "")
			slices.Sort(missing)
			return &CRD{Missing: missing}
		}
	}
	return &CRD{Missing: []string{"version " + v1alpha1.GroupVersion.Version}}
}

// unknown walks the fields of Atoll's own types. It skips the types of Kubernetes, whose version is that with which the CRD was generated,
// so that they do no harm.
func unknown(schema *apiextensionsv1.JSONSchemaProps, t reflect.Type, path string) []string {
	for schema != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		if t.Kind() == reflect.Slice {
			if schema.Items == nil {
				return nil
			}
			schema, path = schema.Items.Schema, path+"[]"
		}
		t = t.Elem()
	}
	if schema == nil || t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[v1alpha1.SandboxEnv]().PkgPath() {
		return nil
	}
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && strings.Contains(options, "inline"):
			out = append(out, unknown(schema, f.Type, path)...)
		case name == "" || name == "-":
		default:
			property, ok := schema.Properties[name]
			if !ok {
				out = append(out, strings.TrimPrefix(path+"."+name, "."))
				continue
			}
			out = append(out, unknown(&property, f.Type, path+"."+name)...)
		}
	}
	return out
}
