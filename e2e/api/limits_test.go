// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// list writes n items in YAML, each from the format with its number.
func list(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// onlyMembers returns an Env with nothing but members.
func onlyMembers(n int) string {
	return `[{op: replace, path: /spec, value: {templateRef: {name: t}, clusters: [{clusterID: east, members: ` + list(n, `{name: m%d}`) +
		`}]}}]`
}

func onlyClusters(n int) string {
	return `[{op: replace, path: /spec, value: {templateRef: {name: t}, clusters: ` + list(n, `{clusterID: c%d}`) + `}}]`
}

func onlyGroups(n int) string {
	return `[{op: replace, path: /spec, value: {templateRef: {name: t},
		clusters: [{clusterID: east, members: ` + list(min(n, 32), `{name: m%d, config: {scalingGroup: g%[1]d}}`) + `},
			{clusterID: west, members: ` + list(n, `{name: m%d, config: {scalingGroup: g%[1]d}}`) + `}],
		autoscaling: {groups: ` + list(n, `{name: g%d}`) + `}}}]`
}

func text(n int) string { return strings.Repeat("x", n) }

// limits are tested on both sides: a value at the limit is accepted, a value past it is refused with the field and why.
var limits = []struct {
	name, file   string
	at, past     string
	field, why   string
	pastIsTooBig bool // for a request, so that no field is named
}{
	{"members of a cluster", "env.yaml", onlyMembers(32), onlyMembers(33), "spec.clusters[0].members", "at most 32", false},
	{"clusters", "env.yaml", onlyClusters(256), onlyClusters(257), "spec.clusters", "at most 256", false},
	{"groups", "env.yaml", onlyGroups(32), onlyGroups(33), "spec.autoscaling.groups", "at most 32", false},
	{"a template's name", "env.yaml",
		`[{op: replace, path: /spec/templateRef/name, value: ` + text(253) + `}]`,
		`[{op: replace, path: /spec/templateRef/name, value: ` + text(254) + `}]`, "spec.templateRef.name", "253", false},
	{"an instance type's name", "env.yaml",
		`[{op: replace, path: ` + members + `/2/config/instanceType, value: ` + text(253) + `}]`,
		`[{op: replace, path: ` + members + `/2/config/instanceType, value: ` + text(254) + `}]`,
		"spec.clusters[0].members[2].config.instanceType", "253", false},
	{"a member's name", "env.yaml",
		`[{op: replace, path: ` + members + `/2/name, value: ` + text(63) + `}]`,
		`[{op: replace, path: ` + members + `/2/name, value: ` + text(64) + `}]`, "spec.clusters[0].members[2].name", "63", false},
	{"a scaling group's name", "env.yaml",
		`[{op: replace, path: ` + members + `/2/config/scalingGroup, value: ` + text(63) + `}]`,
		`[{op: replace, path: ` + members + `/2/config/scalingGroup, value: ` + text(64) + `}]`,
		"spec.clusters[0].members[2].config.scalingGroup", "63", false},
	{"a priority", "env.yaml",
		`[{op: add, path: ` + members + `/2/config/priority, value: -2147483648}]`,
		`[{op: add, path: ` + members + `/2/config/priority, value: 2147483648}]`, "spec.clusters[0].members[2].config.priority", "int32", false},
	{"a multiplier", "env.yaml",
		`[{op: replace, path: ` + members + `/2/config/multiplier, value: 2147483647}]`,
		`[{op: replace, path: ` + members + `/2/config/multiplier, value: 2147483648}]`, "spec.clusters[0].members[2].config.multiplier", "int32",
		false},
	{"a default multiplier", "env.yaml",
		`[{op: replace, path: /spec/defaults/multiplier, value: 1}]`,
		`[{op: replace, path: /spec/defaults/multiplier, value: -1}]`, "spec.defaults.multiplier", "greater than or equal to 1", false},
	{"a snapshot's replicas", "env.yaml",
		`[{op: replace, path: ` + members + `/0/spec/replicas, value: 2147483647}]`,
		`[{op: replace, path: ` + members + `/0/spec/replicas, value: 2147483648}]`, "spec.clusters[0].members[0].spec.replicas", "int32", false},
	{"a cooldown", "env.yaml",
		`[{op: replace, path: ` + groups + `/0/scaleUpPolicy/cooldownSeconds, value: 2147483647}]`,
		`[{op: replace, path: ` + groups + `/0/scaleUpPolicy/cooldownSeconds, value: 2147483648}]`, "cooldownSeconds", "int32", false},
	{"a saturation cooldown", "env.yaml",
		`[{op: replace, path: ` + groups + `/0/scaleUpPolicy/saturationCooldownSeconds, value: 0}]`,
		`[{op: replace, path: ` + groups + `/0/scaleUpPolicy/saturationCooldownSeconds, value: -1}]`, "saturationCooldownSeconds",
		"greater than or equal to 0", false},
	{"an idle threshold", "env.yaml",
		`[{op: replace, path: ` + groups + `/0/scaleUpPolicy/idleThresholdSeconds, value: 0}]`,
		`[{op: replace, path: ` + groups + `/0/scaleUpPolicy/idleThresholdSeconds, value: -1}]`, "idleThresholdSeconds",
		"greater than or equal to 0", false},
	{"a quiet window", "env.yaml",
		`[{op: replace, path: ` + groups + `/0/scaleUpPolicy/idleZeroQuietWindowSeconds, value: 0}]`,
		`[{op: replace, path: ` + groups + `/0/scaleUpPolicy/idleZeroQuietWindowSeconds, value: -1}]`, "idleZeroQuietWindowSeconds",
		"greater than or equal to 0", false},
	{"an idle timeout of scale-down", "env.yaml",
		`[{op: replace, path: ` + groups + `/0/scaleDownPolicy/idleTimeoutSeconds, value: 0}]`,
		`[{op: replace, path: ` + groups + `/0/scaleDownPolicy/idleTimeoutSeconds, value: -1}]`, "idleTimeoutSeconds",
		"greater than or equal to 0", false},
	{"a stabilisation window", "env.yaml",
		`[{op: replace, path: ` + groups + `/0/scaleDownPolicy/stabilizationSeconds, value: 0}]`,
		`[{op: replace, path: ` + groups + `/0/scaleDownPolicy/stabilizationSeconds, value: -1}]`, "stabilizationSeconds",
		"greater than or equal to 0", false},
	{"annotations", "env.yaml",
		`[{op: add, path: /metadata/annotations, value: {a: ` + text(256<<10-1) + `}}]`,
		`[{op: add, path: /metadata/annotations, value: {a: ` + text(256<<10+1) + `}}]`, "metadata.annotations",
		"may not be more than 262144 bytes", false},
	{"a pool's replicas", "pool.yaml",
		`[{op: replace, path: /spec/replicas, value: 2147483647}]`,
		`[{op: replace, path: /spec/replicas, value: -2147483648}]`, "spec.replicas", "greater than or equal to 0", false},
	{"a pool's timeout", "pool.yaml",
		`[{op: replace, path: /spec/defaultStartupTimeout, value: 2562047h47m16s}]`,
		`[{op: replace, path: /spec/defaultStartupTimeout, value: -1ns}]`, "spec.defaultStartupTimeout", "not negative", false},
	{"a pool's timeout in words", "pool.yaml",
		`[{op: replace, path: /spec/defaultStartupTimeout, value: 90s}]`,
		`[{op: replace, path: /spec/defaultStartupTimeout, value: 90}]`, "spec.defaultStartupTimeout", "string", false},
	{"a pool's annotations", "pool.yaml",
		`[{op: add, path: /metadata/annotations, value: {a: ` + text(256<<10-1) + `}}]`,
		`[{op: add, path: /metadata/annotations, value: {a: ` + text(256<<10+1) + `}}]`, "metadata.annotations",
		"may not be more than 262144 bytes", false},
	{"a runtime's port", "template.yaml",
		`[{op: replace, path: /spec/runtimes/0/port, value: 1}]`,
		`[{op: replace, path: /spec/runtimes/0/port, value: 0}]`, "spec.runtimes[0].port", "greater than or equal to 1", false},
	{"a template's annotations", "template.yaml",
		`[{op: add, path: /metadata/annotations, value: {a: ` + text(256<<10-1) + `}}]`,
		`[{op: add, path: /metadata/annotations, value: {a: ` + text(256<<10+1) + `}}]`, "metadata.annotations",
		"may not be more than 262144 bytes", false},
	{"a request, by a template's annotations", "template.yaml", `[]`,
		`[{op: add, path: /metadata/annotations, value: {a: ` + text(5<<20) + `}}]`, "", "", true},
	{"a request, by an Env's annotations", "env.yaml", `[]`,
		`[{op: add, path: /metadata/annotations, value: {a: ` + text(5<<20) + `}}]`, "", "", true},
	{"a request, by a snapshot's annotations", "env.yaml", `[]`,
		`[{op: add, path: ` + members + `/0/metadata, value: {annotations: {a: ` + text(5<<20) + `}}}]`, "", "", true},
	{"a request, by a pool's annotations", "pool.yaml", `[]`,
		`[{op: add, path: /metadata/annotations, value: {a: ` + text(5<<20) + `}}]`, "", "", true},
}

func TestLimits(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	for _, tt := range limits {
		t.Run(tt.name, func(t *testing.T) {
			ctx := testContext(t) // several megabytes take a while on a busy machine
			dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
			r := resource(tt.file, namespace)
			object := func(patch string) *unstructured.Unstructured {
				o := patched(t, manifest(t, tt.file), patch)
				o.SetName(namespace) // templates have none, and other tests create the manifest's
				return o
			}
			if _, err := r.Create(ctx, object(tt.at), dry); err != nil {
				t.Errorf("at the limit: %.500s", err.Error())
			}
			_, err := r.Create(ctx, object(tt.past), dry)
			if !tt.pastIsTooBig {
				refusal(t, err, tt.field, tt.why)
			} else if !apierrors.IsRequestEntityTooLargeError(err) {
				t.Errorf("past the limit: %.500v", err)
			}
		})
	}
}
