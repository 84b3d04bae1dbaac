// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/pkg/problem"
)

// ConfigMapName is the name of the ConfigMap in the worker's namespace.
const ConfigMapName = "atoll-instance-types"

// maxNamed bounds how many types an error lists.
const maxNamed = 20

// Catalogue is a cluster's instance types. The zero value has none.
type Catalogue struct {
	types map[string]entry
}

type entry struct {
	spec typeSpec
	err  error // why the type cannot be used
}

// typeSpec is a parsed type.
type typeSpec struct {
	requests, limits corev1.ResourceList
	multiplier       bounds
}

// bounds is a range. A nil end is open.
type bounds struct {
	Min *int32 `json:"min"`
	Max *int32 `json:"max"`
}

// document is the YAML of a type. Quantities are parsed one by one, so that an error can name the faulty one.
type document struct {
	Requests   map[string]any `json:"requests"`
	Limits     map[string]any `json:"limits"`
	Multiplier bounds         `json:"multiplier"`
}

// Parse parses the data of the ConfigMap.
func Parse(data map[string]string) Catalogue {
	c := Catalogue{types: make(map[string]entry, len(data))}
	for name, text := range data {
		spec, err := parseType(text)
		if err != nil {
			err = fmt.Errorf("instance type %q of ConfigMap %s: %w", name, ConfigMapName, err)
		}
		c.types[name] = entry{spec, err}
	}
	return c
}

func parseType(text string) (spec typeSpec, err error) {
	var doc document
	if err := yaml.UnmarshalStrict([]byte(text), &doc); err != nil {
		return spec, fmt.Errorf("want requests, limits and multiplier {min, max}: %w", err)
	}
	spec.multiplier = doc.Multiplier
	if spec.requests, err = parseList("requests", doc.Requests); err != nil {
		return spec, err
	}
	if spec.limits, err = parseList("limits", doc.Limits); err != nil {
		return spec, err
	}
	if len(spec.requests) == 0 && len(spec.limits) == 0 {
		return spec, invalid("requests", "", "at least one resource in requests or limits")
	}
	for _, name := range slices.Sorted(maps.Keys(spec.requests)) {
		request := spec.requests[name]
		if limit, ok := spec.limits[name]; ok && request.Cmp(limit) > 0 {
			return spec, invalid("requests."+string(name), request.String(), fmt.Sprintf("at most limits.%s, %s", name, limit.String()))
		}
	}
	if low := spec.lowest(); low < 1 {
		return spec, invalid("multiplier.min", strconv.Itoa(int(low)), "1 or more")
	}
	if high := spec.multiplier.Max; high != nil && *high < spec.lowest() {
		return spec, invalid("multiplier.max", strconv.Itoa(int(*high)), fmt.Sprintf("%d or more", spec.lowest()))
	}
	return spec, nil
}

func parseList(field string, values map[string]any) (corev1.ResourceList, error) {
	if len(values) == 0 {
		return nil, nil
	}
	list := make(corev1.ResourceList, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !resourceName(name) {
			return nil, invalid(field, name, "cpu, memory, ephemeral-storage, hugepages-SIZE, or a name with a domain as nvidia.com/gpu")
		}
		value := fmt.Sprint(values[name])
		quantity, err := resource.ParseQuantity(value)
		if err != nil || quantity.Sign() < 0 {
			return nil, invalid(field+"."+name, value, "a quantity that is not negative, as 500m, 2 or 1Gi")
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list, nil
}

// resourceName reports whether a container may have the resource. The API server rejects a Pod with any other.
func resourceName(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	if strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
		return true
	}
	return strings.Contains(name, "/") && len(validation.IsQualifiedName(name)) == 0
}

func (s *typeSpec) lowest() int32 {
	if s.multiplier.Min == nil {
		return 1
	}
	return *s.multiplier.Min
}

// valid returns a description of the multipliers that a type accepts, and whether this is one.
func (s *typeSpec) valid(multiplier int32) (text string, ok bool) {
	if s.multiplier.Max == nil {
		return fmt.Sprintf("%d or more", s.lowest()), multiplier >= s.lowest()
	}
	return fmt.Sprintf("%d to %d", s.lowest(), *s.multiplier.Max), multiplier >= s.lowest() && multiplier <= *s.multiplier.Max
}

// Resolve returns the resources of a Pod of the type. field is the path of the type and the multiplier in the manifest, such as config.
func (c Catalogue) Resolve(field, instanceType string, multiplier int32) (*corev1.ResourceRequirements, error) {
	if err := c.Known(field, instanceType); err != nil {
		return nil, err
	}
	found := c.types[instanceType]
	if found.err != nil {
		return nil, found.err
	}
	value := strconv.Itoa(int(multiplier))
	if valid, ok := found.spec.valid(multiplier); !ok {
		return nil, invalid(field+".multiplier", value, valid+" for instance type "+instanceType)
	}
	requests, okRequests := times(found.spec.requests, multiplier)
	limits, okLimits := times(found.spec.limits, multiplier)
	if !okRequests || !okLimits {
		return nil, invalid(field+".multiplier", value, "less: the resources of instance type "+instanceType+" have no such multiple")
	}
	return &corev1.ResourceRequirements{Requests: requests, Limits: limits}, nil
}

// Known returns an error if the type does not exist.
func (c Catalogue) Known(field, instanceType string) error {
	if _, ok := c.types[instanceType]; !ok {
		return invalid(field+".instanceType", instanceType, c.names())
	}
	return nil
}

// invalid formats an error as the API does, for a condition.
func invalid(field, value, valid string) error {
	return errors.New(problem.InvalidField(field, value, valid).Message)
}

// names lists the types.
func (c Catalogue) names() string {
	if len(c.types) == 0 {
		return "a type of ConfigMap " + ConfigMapName + " in the worker's namespace, which has none"
	}
	all := slices.Sorted(maps.Keys(c.types))
	if len(all) > maxNamed {
		all = append(all[:maxNamed], "…")
	}
	return "one of " + strings.Join(all, ", ")
}

// times returns the list multiplied by n, or false if a product overflows a quantity.
func times(list corev1.ResourceList, n int32) (corev1.ResourceList, bool) {
	if list == nil {
		return nil, true
	}
	out := make(corev1.ResourceList, len(list))
	for name, quantity := range list {
		// Mul reports whether it stayed within 64 bits; the product is exact in any case.
		product := quantity.DeepCopy()
		product.Mul(int64(n))
		// This is the API server's form, so that comparisons work. It holds no more than 64 bits.
		canonical, err := resource.ParseQuantity(product.String())
		if err != nil || canonical.Cmp(product) != 0 {
			return nil, false
		}
		out[name] = canonical
	}
	return out, true
}
