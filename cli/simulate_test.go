// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

const simulatedEnv = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: python}
spec:
  mode: WarmPool
  templateRef: {name: python}
  autoscaling:
    groups: [{name: default, enabled: true, maxReplicas: 10}]
  clusters:
    - clusterID: east
      members: [{name: python-east, spec: {replicas: 2}}]
`

// simulated runs a command line in its own directory with these files.
func simulated(t *testing.T, files map[string]string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	}
	var out, complaints bytes.Buffer
	err = command(t.Context(), &out, &complaints, args...)
	return out.String(), complaints.String(), err
}

func TestSimulateComparesPoliciesOnTheSameClaims(t *testing.T) {
	files := map[string]string{
		"now.yaml":  simulatedEnv,
		"more.yaml": strings.Replace(simulatedEnv, "maxReplicas: 10", "maxReplicas: 20, minReplicas: 5", 1),
		"off.yaml":  strings.Replace(simulatedEnv, "enabled: true", "enabled: false", 1),
	}
	table, complaints, err := simulated(t, files, "simulate", "-f", "now.yaml", "-f", "more.yaml", "-f", "off.yaml", "--scenario", "bursts",
		"-o", "json")
	must.Succeed(t, err)
	var got []struct {
		Name                         string
		Claims, Served, ServedAtOnce int
		Grew                         int
	}
	if err := json.Unmarshal([]byte(table), &got); err != nil {
		t.Fatalf("%v: %s", err, table)
	}
	if len(got) != 3 || got[0].Name != "now" || got[0].Claims == 0 || got[1].Claims != got[0].Claims ||
		got[1].ServedAtOnce <= got[0].ServedAtOnce {
		t.Errorf("got %+v", got)
	}
	if got[2].Grew != 0 || !strings.Contains(complaints, "replicas stay as they are") {
		t.Errorf("without autoscaling: %+v, and said: %q", got[2], complaints)
	}
}

func TestSimulateDraws(t *testing.T) {
	files := map[string]string{"t.csv": "time,claims,over,duration\n1m,30,60s,5m\n"}
	out, _, err := simulated(t, files, "simulate", "--trace", "t.csv", "--out", "x.svg", "--text")
	must.Succeed(t, err)
	for _, want := range []string{"what happened", "UnmetDemand", "waited p99", " 30\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if picture, err := os.ReadFile("x.svg"); err != nil || !bytes.HasPrefix(picture, []byte("<svg ")) ||
		!bytes.HasSuffix(picture, []byte("</svg>\n")) {
		t.Errorf("the picture: %v", err)
	}
	if rest, err := filepath.Glob(".atollctl*"); err != nil || len(rest) != 0 {
		t.Errorf("left behind: %v, %v", rest, err)
	}
}

func TestSimulateSaysWhatIsWrong(t *testing.T) {
	files := map[string]string{"t.csv": "time,claims\n1m,many\n", "env.yaml": simulatedEnv,
		"bad.yaml": strings.Replace(simulatedEnv, "maxReplicas: 10", "maxReplicas: -1", 1)}
	for _, c := range []struct{ args, want string }{
		{"--trace t.csv", `t.csv: line 2 of the trace, column claims: got "many", want a whole number`},
		{"--trace none.csv", "open none.csv"},
		{"--scenario war", "scenario"},
		{"--scenario daily --trace t.csv", "only one of --trace, --scenario"},
		{"-f bad.yaml", "bad.yaml: spec.autoscaling.groups[0].maxReplicas"},
		{"-f env.yaml --cluster west", "cluster"},
		{"-f env.yaml -f env.yaml --out x.svg", "--out"},
		{"--duration -1h", "--duration"},
		{"--peak NaN", "--peak"},
		{"--sandbox-duration 0s", "--sandbox-duration"},
		{"--out none/x.svg --duration 1m", "writing none/x.svg"},
		{"-o name", "--output"},
		{"extra", "takes no arguments"},
	} {
		_, _, err := simulated(t, files, append([]string{"simulate"}, strings.Fields(c.args)...)...)
		var said bytes.Buffer
		if err != nil {
			reportError(&said, err)
		}
		if !strings.Contains(said.String(), c.want) {
			t.Errorf("%s: got %q, want %q", c.args, said.String(), c.want)
		}
	}
}

func TestSimulateEndsWhenItIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := command(ctx, io.Discard, io.Discard, "simulate", "--duration", "8000h")
	if err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("got %v", err)
	}
}

// A run starts with what the hub reports, by the catalogue's manifest or another one.
func TestSimulateStartsFromTheFederation(t *testing.T) {
	data, err := yaml.YAMLToJSON([]byte(simulatedEnv))
	must.Succeed(t, err)
	kept := &structpb.Struct{}
	must.Succeed(t, kept.UnmarshalJSON(data))
	s := &scripted{env: &sandboxv1.Env{Namespace: "default", Name: "python", Catalog: &sandboxv1.CatalogEntry{Manifest: kept},
		Clusters: []*sandboxv1.EnvCluster{{ClusterId: "east", Members: []*sandboxv1.EnvMember{{Name: "python-east", Desired: 7, Running: 4}}}}}}
	address := string(serveScripted(t, s))
	claims := func(args ...string) int {
		t.Helper()
		out, _, err := simulated(t, map[string]string{"env.yaml": simulatedEnv, "none.csv": "time,over,claims,duration\n" +
			"2026-01-06T08:00:00Z,60s,1,5m\n"}, append([]string{"simulate", "--trace", "none.csv", "-o", "json", "--server", address}, args...)...)
		must.Succeed(t, err)
		var got []struct{ Claims, ServedAtOnce int }
		must.Succeed(t, json.Unmarshal([]byte(out), &got))
		if len(got) != 1 || got[0].Claims != got[0].ServedAtOnce {
			t.Errorf("%v: got %+v, want all claims served at once by the Pods that are there", args, got)
		}
		return got[0].Claims
	}
	if n := claims("-f", "env.yaml"); n != 1 {
		t.Errorf("without the federation's state: %d claims", n)
	}
	for _, args := range [][]string{{"--cluster-state", "default/python"}, {"--cluster-state", "default/python", "-f", "env.yaml"}} {
		if n := claims(args...); n != 5 {
			t.Errorf("%v: %d claims, want one, and one for each of 4 sandboxes that run", args, n)
		}
	}
	s.env.Catalog = nil
	if _, _, err := simulated(t, nil, "simulate", "--server", address, "--cluster-state", "default/python"); err == nil ||
		!strings.Contains(err.Error(), "the manifest of default/python, which the hub's catalogue does not have") {
		t.Errorf("without a manifest: %v", err)
	}
}
