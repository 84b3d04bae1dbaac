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

// onlyMembers is the spec of an Env with nothing but members.
func onlyMembers(n int) string {
	return `{templateRef: {name: t}, clusters: [{clusterID: east, members: ` + list(n, `{name: m%d}`) + `}]}`
}

func onlyClusters(n int) string {
	return `{templateRef: {name: t}, clusters: ` + list(n, `{clusterID: c%d}`) + `}`
}

func onlyGroups(n int) string {
	return `{templateRef: {name: t},
		clusters: [{clusterID: east, members: ` + list(min(n, 32), `{name: m%d, config: {scalingGroup: g%[1]d}}`) + `},
			{clusterID: west, members: ` + list(n, `{name: m%d, config: {scalingGroup: g%[1]d}}`) + `}],
		autoscaling: {groups: ` + list(n, `{name: g%d}`) + `}}`
}

// annotations have so many bytes.
func annotations(n int) string { return `{a: ` + text(n-1) + `}` }

func text(n int) string { return strings.Repeat("x", n) }

// limits are tested on both sides: a value at the limit is accepted, a value past it is refused with the field and why. Where there is no
// field, the request is too big; without a value, the manifest stays as it is.
var limits = []struct{ name, file, path, at, past, field, why string }{
	{"members of a cluster", "env.yaml", "/spec", onlyMembers(32), onlyMembers(33), "spec.clusters[0].members", "at most 32"},
	{"clusters", "env.yaml", "/spec", onlyClusters(256), onlyClusters(257), "spec.clusters", "at most 256"},
	{"groups", "env.yaml", "/spec", onlyGroups(32), onlyGroups(33), "spec.autoscaling.groups", "at most 32"},
	{"a template's name", "env.yaml", "/spec/templateRef/name", text(253), text(254), "spec.templateRef.name", "253"},
	{"an instance type's name", "env.yaml", members + "/2/config/instanceType", text(253), text(254),
		"spec.clusters[0].members[2].config.instanceType", "253"},
	{"a member's name", "env.yaml", members + "/2/name", text(63), text(64), "spec.clusters[0].members[2].name", "63"},
	{"a scaling group's name", "env.yaml", members + "/2/config/scalingGroup", text(63), text(64),
		"spec.clusters[0].members[2].config.scalingGroup", "63"},
	{"a priority", "env.yaml", members + "/2/config/priority", "-2147483648", "2147483648",
		"spec.clusters[0].members[2].config.priority", "int32"},
	{"a multiplier", "env.yaml", members + "/2/config/multiplier", "2147483647", "2147483648",
		"spec.clusters[0].members[2].config.multiplier", "int32"},
	{"a default multiplier", "env.yaml", "/spec/defaults/multiplier", "1", "-1", "spec.defaults.multiplier", "greater than or equal to 1"},
	{"a snapshot's replicas", "env.yaml", members + "/0/spec/replicas", "2147483647", "2147483648",
		"spec.clusters[0].members[0].spec.replicas", "int32"},
	{"a cooldown", "env.yaml", groups + "/0/scaleUpPolicy/cooldownSeconds", "2147483647", "2147483648", "cooldownSeconds", "int32"},
	{"a saturation cooldown", "env.yaml", groups + "/0/scaleUpPolicy/saturationCooldownSeconds", "0", "-1",
		"saturationCooldownSeconds", "greater than or equal to 0"},
	{"an idle threshold", "env.yaml", groups + "/0/scaleUpPolicy/idleThresholdSeconds", "0", "-1",
		"idleThresholdSeconds", "greater than or equal to 0"},
	{"a quiet window", "env.yaml", groups + "/0/scaleUpPolicy/idleZeroQuietWindowSeconds", "0", "-1",
		"idleZeroQuietWindowSeconds", "greater than or equal to 0"},
	{"an idle timeout of scale-down", "env.yaml", groups + "/0/scaleDownPolicy/idleTimeoutSeconds", "0", "-1",
		"idleTimeoutSeconds", "greater than or equal to 0"},
	{"a stabilisation window", "env.yaml", groups + "/0/scaleDownPolicy/stabilizationSeconds", "0", "-1",
		"stabilizationSeconds", "greater than or equal to 0"},
	{"annotations", "env.yaml", "/metadata/annotations", annotations(256 << 10), annotations(256<<10 + 2),
		"metadata.annotations", "may not be more than 262144 bytes"},
	{"a pool's replicas", "pool.yaml", "/spec/replicas", "2147483647", "-2147483648", "spec.replicas", "greater than or equal to 0"},
	{"a pool's timeout", "pool.yaml", "/spec/defaultStartupTimeout", "2562047h47m16s", "-1ns", "spec.defaultStartupTimeout", "not negative"},
	{"a pool's timeout in words", "pool.yaml", "/spec/defaultStartupTimeout", "90s", "90", "spec.defaultStartupTimeout", "string"},
	{"a pool's annotations", "pool.yaml", "/metadata/annotations", annotations(256 << 10), annotations(256<<10 + 2),
		"metadata.annotations", "may not be more than 262144 bytes"},
	{"a runtime's port", "template.yaml", "/spec/runtimes/0/port", "1", "0", "spec.runtimes[0].port", "greater than or equal to 1"},
	{"a template's annotations", "template.yaml", "/metadata/annotations", annotations(256 << 10), annotations(256<<10 + 2),
		"metadata.annotations", "may not be more than 262144 bytes"},
	{"a request, by a template's annotations", "template.yaml", "/metadata/annotations", "", annotations(5 << 20), "", ""},
	{"a request, by an Env's annotations", "env.yaml", "/metadata/annotations", "", annotations(5 << 20), "", ""},
	{"a request, by a snapshot's annotations", "env.yaml", members + "/0/metadata", "", "{annotations: " + annotations(5<<20) + "}", "", ""},
	{"a request, by a pool's annotations", "pool.yaml", "/metadata/annotations", "", annotations(5 << 20), "", ""},
}

func TestLimits(t *testing.T) {
	ctx := testContext(t)
	namespace := newNamespace(ctx, t)
	for _, tt := range limits {
		t.Run(tt.name, func(t *testing.T) {
			ctx := testContext(t) // several megabytes take a while on a busy machine
			dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
			r := resource(tt.file, namespace)
			object := func(value string) *unstructured.Unstructured {
				o := manifest(t, tt.file)
				if value != "" {
					o = patched(t, o, `[{op: add, path: `+tt.path+`, value: `+value+`}]`)
				}
				o.SetName(namespace) // templates have none, and other tests create the manifest's
				return o
			}
			if _, err := r.Create(ctx, object(tt.at), dry); err != nil {
				t.Errorf("at the limit: %.500s", err.Error())
			}
			_, err := r.Create(ctx, object(tt.past), dry)
			if tt.field != "" {
				refusal(t, err, tt.field, tt.why)
			} else if !apierrors.IsRequestEntityTooLargeError(err) {
				t.Errorf("past the limit: %.500v", err)
			}
		})
	}
}
