// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

const manifest = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxTemplate
metadata: {name: python}
---
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: python}
spec:
  mode: WarmPool
  templateRef: {name: python}
  autoscaling:
    groups:
      - name: default
        enabled: true
        maxReplicas: 50
        scaleUpPolicy: {idleThresholdSeconds: 0}
      - {name: gpu}
  clusters:
    - clusterID: east
      members:
        - {name: python-east, spec: {replicas: 6}}
        - {name: python-alone, config: {scalingGroup: ""}}
    - clusterID: west
      members: [{name: python-gpu, spec: {replicas: 1}, config: {scalingGroup: gpu, priority: 3, maxReplicas: 4}}]
`

func TestReadEnv(t *testing.T) {
	env, err := ReadEnv(strings.NewReader(manifest), "", "")
	must.Succeed(t, err)
	if len(env.Groups) != 2 || len(env.Pools) != 3 || env.Name != "python" || !env.Autoscaled() {
		t.Fatalf("got %+v", env)
	}
	first := DefaultGroup("default")
	first.Enabled, first.MaxReplicas, first.ScaleUpPolicy.IdleThresholdSeconds = true, env.Groups[0].MaxReplicas, 0
	if !reflect.DeepEqual(env.Groups[0], first) || *env.Groups[0].MaxReplicas != 50 || !reflect.DeepEqual(env.Groups[1], DefaultGroup("gpu")) {
		t.Errorf("groups are %+v", env.Groups)
	}
	if p := env.Pools[0]; p.Cluster != "east" || p.Replicas != 6 || p.Config.ScalingGroup != "default" {
		t.Errorf("the first pool is %+v", p)
	}
	if got := env.Pools[1].Config.ScalingGroup; got != "" {
		t.Errorf("a member without a group is in %q", got)
	}
	if p := env.Pools[2]; p.Config.ScalingGroup != "gpu" || p.Config.Priority != 3 || *p.Config.MaxReplicas != 4 {
		t.Errorf("the third pool is %+v", p)
	}
	west, err := ReadEnv(strings.NewReader(manifest), "python", "west")
	if err != nil || len(west.Pools) != 1 || west.Pools[0].Name != "python-gpu" {
		t.Errorf("of west: %+v, %v", west.Pools, err)
	}
}

func TestReadEnvSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ old, with, env, cluster, want string }{
		{"kind: SandboxEnv", "kind: Other", "", "", "no SandboxEnv"},
		{"", "", "ruby", "", "one of python"},
		{"", "", "", "north", "of east, west"},
		{"maxReplicas: 50", "maxReplica: 50", "", "", "unknown field \"spec.autoscaling.groups[0].maxReplica\""},
		{"maxReplicas: 50", "maxReplicas: -1", "", "", "spec.autoscaling.groups[0].maxReplicas"},
		{"maxReplicas: 50\n", "maxReplicas: 5\n        minReplicas: 6\n", "", "", "no more than maxReplicas, 5"},
		{"{idleThresholdSeconds: 0}", "{idleThresholdSeconds: -1}", "", "", "scaleUpPolicy.idleThresholdSeconds"},
		{"{idleThresholdSeconds: 0}", "{mode: Wild}", "", "", "Conservative, Default or Aggressive"},
		{"{name: gpu}", "{name: gpu, scaleUpPolicy: {mode: Aggressive}}", "", "", "groups[1].maxReplicas"},
		{"{name: gpu}", "{name: default}", "", "", "a name that no other group has"},
		{"replicas: 6", "replicas: 1000000", "", "", "spec.clusters[east].members[python-east].spec.replicas"},
		{"name: python-alone", "name: python-east", "", "", "that no other member has"},
		{"replicas: 6", "replicas: six", "", "", "replicas"},
	} {
		text := strings.Replace(manifest, c.old, c.with, 1)
		_, err := ReadEnv(strings.NewReader(text), c.env, c.cluster)
		if err == nil || !strings.Contains(fmt.Sprintf("%+v %v", err, faultsOf(err)), c.want) {
			t.Errorf("%s: got %v, want %q", c.with, err, c.want)
		}
	}
}

func faultsOf(err error) string {
	data, _ := json.Marshal(err)
	return string(data)
}

// The defaults equal those of the API server's schema.
func TestDefaultsAreTheSchemas(t *testing.T) {
	data, err := os.ReadFile("../../charts/worker/files/crds/agents.navix.sh_sandboxenvs.yaml")
	must.Succeed(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must.Succeed(t, yaml.Unmarshal(data, crd))
	group := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["autoscaling"].Properties["groups"].Items.Schema
	want := v1alpha1.EnvAutoscalingGroup{Name: "default"}
	must.Succeed(t, json.Unmarshal(defaultsOf(t, *group), &want))
	if got := DefaultGroup("default"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, the schema has %+v", got, want)
	}
}

func defaultsOf(t *testing.T, schema apiextensionsv1.JSONSchemaProps) []byte {
	t.Helper()
	if len(schema.Properties) == 0 {
		if schema.Default == nil {
			return []byte("null")
		}
		return schema.Default.Raw
	}
	all := map[string]json.RawMessage{}
	for name, property := range schema.Properties {
		if value := defaultsOf(t, property); !bytes.Equal(value, []byte("null")) {
			all[name] = value
		}
	}
	data, err := json.Marshal(all)
	must.Succeed(t, err)
	return data
}

func FuzzReadEnv(f *testing.F) {
	f.Add([]byte(manifest))
	f.Fuzz(func(t *testing.T, data []byte) {
		env, err := ReadEnv(bytes.NewReader(data), "", "")
		if err != nil {
			return
		}
		if len(env.Pools) == 0 || len(env.faults()) > 0 {
			t.Fatalf("%+v", env)
		}
	})
}
