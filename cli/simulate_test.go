// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&complaints)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
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
		{"--trace none.csv", "opening none.csv"},
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
		{"extra", "unknown command"},
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
	root := newRoot()
	root.SetArgs([]string{"simulate", "--duration", "8000h"})
	if err := root.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("got %v", err)
	}
}
