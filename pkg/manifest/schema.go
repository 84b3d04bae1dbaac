// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/charts"
)

// Kinds of the catalogue.
const (
	EnvKind      = "SandboxEnv"
	TemplateKind = "SandboxTemplate"
)

var files = map[string]string{EnvKind: "sandboxenvs", TemplateKind: "sandboxtemplates"}

// checker checks objects against a CRD.
type checker struct {
	structural *structuralschema.Structural
	schema     schemavalidation.SchemaValidator
	rules      *cel.Validator
	namespaced bool
}

// checkers are built at their first use, because compiling the rules takes a tenth of a second.
var checkers = sync.OnceValues(func() (map[string]*checker, error) {
	out := map[string]*checker{}
	for kind, file := range files {
		c, err := newChecker(file)
		if err != nil {
			return nil, fmt.Errorf("reading the CRD of %s: %w", kind, err)
		}
		out[kind] = c
	}
	return out, nil
})

func newChecker(file string) (*checker, error) {
	data, err := charts.CRDs.ReadFile("worker/files/crds/agents.navix.sh_" + file + ".yaml")
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, crd); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == v1alpha1.GroupVersion.Version
	})
	if i < 0 || crd.Spec.Versions[i].Schema == nil {
		return nil, fmt.Errorf("it has no schema of version %s", v1alpha1.GroupVersion.Version)
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema, internal, nil); err != nil {
		return nil, err
	}
	c := &checker{namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped}
	if c.structural, err = structuralschema.NewStructural(internal); err != nil {
		return nil, err
	}
	if c.schema, _, err = schemavalidation.NewSchemaValidator(internal); err != nil {
		return nil, err
	}
	c.rules = cel.NewValidator(c.structural, true, celconfig.PerCallLimit)
	return c, nil
}

// Check returns the error with which an API server would reject a manifest, or nil. before is the manifest that it replaces; nil: none.
func Check(ctx context.Context, o, before Object) error {
	all, err := checkers()
	if err != nil {
		return err
	}
	c := all[o.Kind()]
	if c == nil {
		return fmt.Errorf("kind: %q is not valid, want %s or %s", o.Kind(), EnvKind, TemplateKind)
	}
	if want := v1alpha1.GroupVersion.String(); o.text("apiVersion") != want {
		return fmt.Errorf("apiVersion: %q is not valid, want %q", o.text("apiVersion"), want)
	}
	if unknown := c.unknown(o); len(unknown) > 0 {
		return apierrors.NewBadRequest("strict decoding error: " + strings.Join(unknown, ", "))
	}
	filled := c.fill(o)
	var old map[string]any
	if before != nil {
		old = c.fill(before)
	}
	if faults := c.faults(ctx, filled, old); len(faults) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: o.Kind()}, o.Name(), faults)
	}
	return nil
}

// unknown returns the fields that the schema does not contain.
func (c *checker) unknown(o Object) (out []string) {
	paths := pruning.PruneWithOptions(runtime.DeepCopyJSON(o), c.structural, true, structuralschema.UnknownFieldPathOptions{
		TrackUnknownFieldPaths: true,
	})
	slices.Sort(paths)
	for _, path := range paths {
		out = append(out, fmt.Sprintf("unknown field %q", path))
	}
	return out
}

// fill returns a copy with the schema's defaults.
func (c *checker) fill(o Object) map[string]any {
	out := runtime.DeepCopyJSON(o)
	defaulting.PruneNonNullableNullsWithoutDefaults(out, c.structural)
	defaulting.Default(out, c.structural)
	return out
}

func (c *checker) faults(ctx context.Context, o, old map[string]any) field.ErrorList {
	u := &unstructured.Unstructured{Object: o}
	path := field.NewPath("metadata")
	faults := validation.ValidateObjectMetaAccessor(&meta{u}, c.namespaced, validation.NameIsDNSSubdomain, path)
	if old == nil {
		faults = append(faults, schemavalidation.ValidateCustomResource(nil, o, c.schema)...)
	} else {
		faults = append(faults, schemavalidation.ValidateCustomResourceUpdate(nil, o, old, c.schema)...)
	}
	faults = append(faults, objectmeta.Validate(nil, o, c.structural, false)...)
	faults = append(faults, listtype.ValidateListSetsAndMaps(nil, c.structural, o)...)
	if c.rules == nil { // the CRD has none
		return faults
	}
	if slices.ContainsFunc(faults, blocks) {
		return append(faults, field.Invalid(nil, nil, unchecked))
	}
	var before any
	if old != nil {
		before = old
	}
	broken, _ := c.rules.Validate(ctx, nil, c.structural, o, before, celconfig.RuntimeCELCostBudget)
	return append(faults, broken...)
}

// unchecked is the message of an API server that has not evaluated its rules.
const unchecked = "some validation rules were not checked because the object was invalid; correct the existing errors to complete " +
	"validation"

// blocks reports whether such a fault keeps an API server from evaluating the rules.
func blocks(e *field.Error) bool {
	switch e.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	default:
		return false
	}
}

// meta hides fields that a manifest cannot set.
type meta struct{ *unstructured.Unstructured }

// GetManagedFields implements metav1.Object.
func (m *meta) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }

// noField is how apimachinery writes a path that is nil.
const noField = "<nil>"

// Faults returns the invalid fields in an error of Check.
func Faults(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(status.Status().Details.Causes), func(c metav1.StatusCause) bool {
		return c.Field == noField // the message contains what concerns the whole object
	})
}
