// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestDecide(t *testing.T) {
	pool := func(i int, env, revision string) User {
		return User{Pool: fmt.Sprintf("ns/p%d", i), Env: env, Revision: revision}
	}
	many := &Snapshot{Revision: "new"}
	for i := range 1000 {
		many.Pools = append(many.Pools, pool(i, "", "old"))
	}
	for _, tt := range []struct {
		name string
		s    *Snapshot
		want string
	}{
		{"unused", &Snapshot{Version: "v1", Revision: "new"}, `
Available=True/Validated: version "v1", revision new; nobody uses it
Degraded=False/AllCurrent: all pools that name it have this revision`},
		{"in use", &Snapshot{Revision: "new", Envs: []string{"ns/b", "ns/a"}, Pools: []User{pool(1, "ns/a", "new"), pool(2, "", "new")}}, `
Available=True/Validated: version "", revision new; pools: 2, of this revision: 2; Envs: ns/a, ns/b; pools without an Env: ns/p2
Degraded=False/AllCurrent: all pools that name it have this revision`},
		{"older revisions", &Snapshot{Revision: "new", Pools: []User{pool(1, "ns/a", "old"), pool(2, "", "new"), pool(3, "", "")}}, `
Available=True/Validated: version "", revision new; pools: 3, of this revision: 1; pools without an Env: ns/p2, ns/p3
Degraded=True/OlderRevisionsInUse: pools of other revisions than new go on with what they were made from: ns/p1 at old`},
		{"faults", &Snapshot{Revision: "new", Faults: []error{errors.New("a is wrong"), errors.New("b is wrong")}, Pools: []User{pool(1, "", "old")}}, `
Available=False/TemplateInvalid: a is wrong; b is wrong
Degraded=True/TemplateInvalid: no Pods can be made from it; pools: 1, of this revision: 0; pools without an Env: ns/p1, which go on with what they were made from`},
		{"being deleted in use", &Snapshot{Revision: "new", Deleting: true, Envs: []string{"ns/a"}}, `
Available=True/Validated: version "", revision new; pools: 0, of this revision: 0; Envs: ns/a
Degraded=True/TemplateDeleted: being deleted; pools: 0, of this revision: 0; Envs: ns/a, which go on with what they were made from, and cannot be made anew`},
		{"being deleted unused", &Snapshot{Revision: "new", Deleting: true}, `
Available=True/Validated: version "", revision new; nobody uses it
Degraded=False/AllCurrent: all pools that name it have this revision`},
		{"a thousand users", many, `
Available=True/Validated: version "", revision new; pools: 1000, of this revision: 0; pools without an Env: ns/p0, ns/p1, ns/p10, ns/p100, ns/p101 and 995 more
Degraded=True/OlderRevisionsInUse: pools of other revisions than new go on with what they were made from: ns/p0 at old, ns/p1 at old, ns/p10 at old, ns/p100 at old, ns/p101 at old and 995 more`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got strings.Builder
			for _, c := range Decide(tt.s) {
				fmt.Fprintf(&got, "\n%s=%s/%s: %s", c.Type, c.Status, c.Reason, c.Message)
			}
			if got.String() != tt.want {
				t.Errorf("got %s\nwant %s", got.String(), tt.want)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct{ name, spec, want string }{
		{"none", `template: {spec: {containers: [{name: main, image: i}]}}`, ""},
		{"empty", `{}`, "spec.template.spec.containers is empty; valid: at least one container"},
		{"no list of containers", `template: {spec: {containers: 5}}`, "spec.template is no Pod template"},
		{"a quantity that is none", `template: {spec: {containers: [{name: main, image: i, resources: {limits: {cpu: lots}}}]}}`, "spec.template is no Pod template"},
		{"no image", `template: {spec: {containers: [{name: main}]}}`, "spec.template.spec.containers[0].image is empty"},
		{"no image of an init container", `template: {spec: {initContainers: [{name: init}], containers: [{name: main, image: i}]}}`,
			"spec.template.spec.initContainers[0].image is empty"},
		{"a name in capitals", `template: {spec: {containers: [{name: Main, image: i}]}}`, `containers[0].name is "Main"; valid: a DNS label`},
		{"a name twice", `template: {spec: {containers: [{name: a, image: i}, {name: a, image: i}]}}`, "two containers of the name a"},
		{"negative resources", `template: {spec: {containers: [{name: a, image: i, resources: {requests: {cpu: "-1"}}}]}}`, "resources.requests.cpu is -1; valid: 0 or more"},
		{"a request above its limit", `template: {spec: {containers: [{name: a, image: i, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}}`,
			"resources.requests.cpu is 2, above its limit 1"},
		{"a runtime twice", `{template: {spec: {containers: [{name: a, image: i}]}}, runtimes: [{name: e2b}, {name: e2b}]}`, `spec.runtimes[1].name is "e2b"`},
		{"a runtime without a name", `{template: {spec: {containers: [{name: a, image: i}]}}, runtimes: [{port: 1}]}`, `spec.runtimes[0].name is ""`},
		{"a port that there is not", `{template: {spec: {containers: [{name: a, image: i}]}}, runtimes: [{name: e2b, port: 70000}]}`, `spec.runtimes[0].port is 70000; valid: 1 to 65535`},
		{"two runtimes of one port", `{template: {spec: {containers: [{name: a, image: i}]}}, runtimes: [{name: a, port: 1}, {name: b, port: 1}]}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var spec map[string]any
			if err := yaml.Unmarshal([]byte(tt.spec), &spec); err != nil {
				t.Fatal(err)
			}
			got := Sentence(Faults(spec))
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestFaultsHaveAnOrder: another text for the same faults would be another write, at every look.
func TestFaultsHaveAnOrder(t *testing.T) {
	var spec map[string]any
	if err := yaml.Unmarshal([]byte(`template: {spec: {containers: [{name: a, image: i, resources: {
		requests: {cpu: 2, memory: 2, a/a: "-1", b/b: "-1", c/c: "-1"}, limits: {cpu: 1, memory: 1, a/a: "-2", b/b: "-2", c/c: "-2"}}}]}}`), &spec); err != nil {
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
