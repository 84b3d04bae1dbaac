// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"navix.sh/atoll/e2e/must"
)

func TestFaults(t *testing.T) {
	for _, tt := range []struct{ name, spec, want string }{
		{"none", `template: {spec: {containers: [{name: main, image: i}]}}`, ""},
		{"empty", `{}`, "spec.template.spec.containers is empty; valid: at least one container"},
		{"no list of containers", `template: {spec: {containers: 5}}`, "spec.template is no Pod template"},
		{"a quantity that is none", `template: {spec: {containers: [{name: main, image: i, resources: {limits: {cpu: lots}}}]}}`,
			"spec.template is no Pod template"},
		{"no image", `template: {spec: {containers: [{name: main}]}}`, "spec.template.spec.containers[0].image is empty"},
		{"no image of an init container", `template: {spec: {initContainers: [{name: init}], containers: [{name: main, image: i}]}}`,
			"spec.template.spec.initContainers[0].image is empty"},
		{"a name in capitals", `template: {spec: {containers: [{name: Main, image: i}]}}`, `containers[0].name is "Main"; valid: a DNS label`},
		{"a name twice", `template: {spec: {containers: [{name: a, image: i}, {name: a, image: i}]}}`, "two containers of the name a"},
		{"negative resources", `template: {spec: {containers: [{name: a, image: i, resources: {requests: {cpu: "-1"}}}]}}`,
			"resources.requests.cpu is -1; valid: 0 or more"},
		{"a request above its limit", `template: {spec: {containers: [{name: a, image: i, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}}`,
			"resources.requests.cpu is 2, above its limit 1"},
		{"a runtime twice", `{template: {spec: {containers: [{name: a, image: i}]}}, runtimes: [{name: e2b}, {name: e2b}]}`,
			`spec.runtimes[1].name is "e2b"`},
		{"a runtime without a name", `{template: {spec: {containers: [{name: a, image: i}]}}, runtimes: [{port: 1}]}`,
			`spec.runtimes[0].name is ""`},
		{"a port that there is not", `{template: {spec: {containers: [{name: a, image: i}]}}, runtimes: [{name: e2b, port: 70000}]}`,
			`spec.runtimes[0].port is 70000; valid: 1 to 65535`},
		{"two runtimes of one " +
			"port", `{template: {spec: {containers: [{name: a, image: i}]}}, runtimes: [{name: a, port: 1}, {name: b, port: 1}]}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var spec map[string]any
			must.Succeed(t, yaml.Unmarshal([]byte(tt.spec), &spec))
			got := Sentence(Faults(spec))
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestFaultsHaveAnOrder: another text for the same faults would be another write, at every reconcile.
func TestFaultsHaveAnOrder(t *testing.T) {
	var spec map[string]any
	if err := yaml.Unmarshal([]byte(`template: {spec: {containers: [{name: a, image: i, resources: {
		requests: {cpu: 2, memory: 2, a/a: "-1", b/b: "-1", c/c: "-1"}, limits: {cpu: 1, memory: 1, a/a: "-2", b/b: "-2", c/c: "-2"}}}]}}`),
		&spec); err != nil {
		t.Fatal(err)
	}
	first := Sentence(Faults(spec))
	for range 50 {
		if got := Sentence(Faults(spec)); got != first {
			t.Fatalf("first %s\nthen %s", first, got)
		}
	}
}

// TestFaultsAreBounded: a thousand containers without images are one message of a condition.
func TestFaultsAreBounded(t *testing.T) {
	containers := make([]any, 1000)
	for i := range containers {
		containers[i] = map[string]any{"name": fmt.Sprintf("%s-%d", strings.Repeat("x", 50), i)}
	}
	got := Sentence(Faults(map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}))
	if len(got) > 1100 || !strings.Contains(got, "more") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
