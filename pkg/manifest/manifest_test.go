// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

const env = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: shell, namespace: agents}
spec:
  templateRef: {name: base}
  mode: WarmPool
  clusters:
    - clusterID: east
      members:
        - {name: shell-east, spec: {replicas: 2}, config: {scalingGroup: big, instanceType: s, multiplier: 1}}
    - clusterID: west
      members:
        - {name: shell-west, spec: {replicas: 3}, config: {scalingGroup: small, instanceType: s, multiplier: 1}}
`

func parse(t *testing.T, text string) Object {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	must.Succeed(t, err)
	o, err := Parse(data)
	must.Succeed(t, err)
	return o
}

// The words are an API server's; e2e/api compares them.
func TestChecks(t *testing.T) {
	for _, tt := range []struct{ name, from, to, want string }{
		{"a valid one", "", "", ""},
		{"an enumeration", "WarmPool", "Cold", `spec.mode: Unsupported value: "Cold"`},
		{"a field that is missing", "  templateRef: {name: base}\n", "", "spec.templateRef: Required value"},
		{"an unknown field", "mode: WarmPool", "mode: WarmPool\n  mod: x", `unknown field "spec.mod"`},
		{"a type", "replicas: 2", "replicas: two", "replicas: Invalid value"},
		{"a list of names", "clusterID: west", "clusterID: east", `spec.clusters[1]: Duplicate value`},
		{"a rule", "mode: WarmPool", "mode: WarmPool\n  autoscaling: {groups: [{name: huge, minReplicas: 1, maxReplicas: 2}]}",
			"spec.autoscaling: Invalid value: each of autoscaling.groups needs a member"},
		{"a name", "name: shell,", "name: Shell,", "metadata.name: Invalid value"},
		{"no namespace", ", namespace: agents", "", "metadata.namespace: Required value"},
		{"a kind", "kind: SandboxEnv", "kind: Pod", `kind: "Pod" is not valid`},
		{"a version", "navix.sh/v1alpha1", "navix.sh/v2", `apiVersion: "agents.navix.sh/v2" is not valid`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(env, tt.from, tt.to, 1)
			err := Check(t.Context(), parse(t, text), nil)
			if got := fmt.Sprint(err); err == nil && tt.want != "" || err != nil && (tt.want == "" || !strings.Contains(got, tt.want)) {
				t.Errorf("got %s, want %q", got, tt.want)
			}
		})
	}
}

// A part is an Env that an API server takes.
func TestPart(t *testing.T) {
	whole := parse(t, strings.Replace(env, "mode: WarmPool", `mode: WarmPool
  autoscaling: {groups: [{name: big, minReplicas: 1, maxReplicas: 9}, {name: small, minReplicas: 1, maxReplicas: 9}]}`, 1))
	must.Succeed(t, Check(t.Context(), whole, nil))
	var parts []Object
	for _, id := range []string{"east", "west"} {
		part, ok := whole.Part(id)
		if !ok {
			t.Fatalf("%s has no part", id)
		}
		must.Succeed(t, Check(t.Context(), part, nil))
		if got := part.Clusters(); len(got) != 1 || got[0] != id {
			t.Errorf("the part of %s has clusters %v", id, got)
		}
		if n := len(part.object("spec", "autoscaling").list("groups")); n != 1 {
			t.Errorf("the part of %s has %d groups, want its own", id, n)
		}
		parts = append(parts, part)
	}
	if _, ok := whole.Part("north"); ok {
		t.Error("a cluster without a segment has a part")
	}
	if changes := Diff(whole, Join(parts)); len(changes) > 0 {
		t.Errorf("joined parts are not the whole: %v", changes)
	}
}

func TestDiff(t *testing.T) {
	before := parse(t, env)
	after := parse(t, strings.NewReplacer("replicas: 3", "replicas: 4", "    - clusterID: east", `    - clusterID: north
      members: []
    - clusterID: east`, "mode: WarmPool", "mode: OnDemandJob").Replace(env))
	got := strings.Join(Diff(before, after), "\n")
	want := `spec.clusters[west].members[shell-west].spec.replicas: 3 -> 4
spec.clusters[north]: (none) -> {"clusterID":"north","members":[]}
spec.mode: "WarmPool" -> "OnDemandJob"`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPlanOf(t *testing.T) {
	for _, tt := range []struct{ plan, want string }{
		{"stages: [[east], [west]]\npause: 10m\nonFailure: rollback", "[[east] [west]] 10m0s"},
		{"stages: [[west]]", "[[west] [east]] 0s"},
		{"stages: [[north]]", "stages[0]: \"north\" is not valid"},
		{"stages: [[east], [east]]", "stages[1]: \"east\" is not valid"},
		{"stages: []", "stages: 0 are not valid"},
		{"stages: [[east]]\npause: soon", "pause: \"soon\" is not valid, want a duration such as 10m, at most 720h, or manual"},
		{"stage: [[east]]", "it is not a plan"},
		{"stages: [[east]]\nonFailure: stop", "onFailure: \"stop\" is not valid"},
	} {
		o := parse(t, env)
		o.object("metadata")["annotations"] = map[string]any{v1alpha1.CatalogRolloutAnnotationKey: tt.plan}
		p, err := PlanOf(o)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(p.Stages, p.Pause)
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%q: got %s, want %s", tt.plan, got, tt.want)
		}
	}
}

// What an API server returns of an object becomes what its author wrote.
func TestClean(t *testing.T) {
	o := parse(t, env)
	m := o.object("metadata")
	m["uid"], m["resourceVersion"], m["generation"] = "u", "7", int64(3)
	m["annotations"] = map[string]any{applied: "{}", v1alpha1.CatalogAnnotationKey: "c/1"}
	o["status"] = map[string]any{"memberCount": int64(1)}
	if changes := Diff(parse(t, env), o.Clean()); len(changes) > 0 {
		t.Errorf("left: %v", changes)
	}
}
