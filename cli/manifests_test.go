// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
)

const twoManifests = `# a comment
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxTemplate
metadata: {name: base}
---
---
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata:
  name: shell
spec:
  clusters:
    - clusterID: east
      members:
        - name: one
        - name: two
`

// A refusal names the file and the line of its field, in every document of a file.
func TestFaultsHaveFileAndLine(t *testing.T) {
	docs, err := parseManifests("envs.yaml", []byte(twoManifests))
	must.Succeed(t, err)
	if len(docs) != 2 || docs[1].object.Namespace() != "default" {
		t.Fatalf("got %v", docs)
	}
	for field, want := range map[string]string{
		"spec.clusters[0].members[1].name": "envs.yaml:16", "spec.mode": "envs.yaml:11", "metadata.name": "envs.yaml:10", "": "envs.yaml:7",
	} {
		refused := problem.New(problem.Invalid, "no")
		refused.Fields = []problem.Field{{Field: field}}
		if got := docs[1].fault(refused).Error(); !strings.Contains(got, want+": no") {
			t.Errorf("%s: got %s, want %s", field, got, want)
		}
	}
	refused := problem.New(problem.Invalid, "SandboxEnv is invalid: [spec.mode: no, metadata.name: long]")
	refused.Fields = []problem.Field{{Field: "spec.mode", Valid: "no"}, {Field: "metadata.name", Valid: "long"}}
	want := "envs.yaml:7: sandboxenv default/shell: 2 fields are not valid\n  envs.yaml:11: spec.mode: no\n  envs.yaml:10: metadata.name: long"
	if got := docs[1].fault(refused).Error(); !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	for text, want := range map[string]string{
		"a: [":                                "envs.yaml:1: ",
		"kind: Pod\nmetadata: {name: x}":      `envs.yaml:1: kind: "Pod" is not valid`,
		"\n\nkind: SandboxEnv":                "envs.yaml:3: metadata.name: a name is needed",
		"kind: List\nitems:\n  - {kind: Pod}": `envs.yaml:3: kind: "Pod" is not valid`,
	} {
		if _, err := parseManifests("envs.yaml", []byte(text)); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// A diff of an Env together with its template does not warn that the catalogue lacks the template.
func TestADiffKnowsItsOwnTemplates(t *testing.T) {
	text := strings.Replace(twoManifests, "spec:\n  clusters:", "spec:\n  templateRef: {name: base}\n  clusters:", 1)
	docs, err := parseManifests("envs.yaml", []byte(text))
	must.Succeed(t, err)
	all := []string{`spec.templateRef.name: the catalogue has no template "base"`, `spec.clusters: no cluster "x" has joined`}
	if got := unlessGiven(docs, docs[1], all); len(got) != 1 || got[0] != all[1] {
		t.Errorf("warns %q", got)
	}
	if got := unlessGiven(docs[1:], docs[1], all); len(got) != 2 {
		t.Errorf("without the template it warns %q", got)
	}
}

func (*scripted) PlanEnv(_ context.Context, r *sandboxv1.PlanEnvRequest) (*sandboxv1.PlanEnvResponse, error) {
	return &sandboxv1.PlanEnvResponse{Clusters: []*sandboxv1.PlannedCluster{
		{ClusterId: "has-" + r.GetName(), Action: sandboxv1.PlannedCluster_CREATE},
	}}, nil
}

// A diff prints a YAML document for each manifest.
func TestADiffOfSeveralManifestsIsSeveralDocuments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "envs.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("kind: SandboxEnv\nmetadata: {name: a}\n---\nkind: SandboxEnv\nmetadata: {name: b}\n"), 0o600))
	const want = "clusters:\n- action: CREATE\n  clusterId: has-a\n---\nclusters:\n- action: CREATE\n  clusterId: has-b\n"
	stdout, stderr, code := serveScripted(t, &scripted{}).run(t.Context(), "diff -o yaml -f "+file)
	if code != exitDiffers || stdout != want {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
}

func (*scripted) PutEnv(_ context.Context, r *sandboxv1.PutEnvRequest) (*sandboxv1.Env, error) {
	return &sandboxv1.Env{Namespace: r.GetNamespace(), Name: r.GetName(), Catalog: &sandboxv1.CatalogEntry{Revision: 1}}, nil
}

// The catalogue takes an Env while the hub waits for clusters: it does not depend on what they have.
func TestApplyWhileTheHubWaitsForClusters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("kind: SandboxEnv\nmetadata: {name: shell, namespace: default}\n"), 0o600))
	waits := problem.New(problem.Recovering, "the hub knows no Env default/shell yet, and waits to hear from west")
	server := serveScripted(t, &scripted{noEnv: waits})
	stdout, stderr, code := server.run(t.Context(), "apply -f "+file)
	if code != 0 || stdout != "sandboxenv default/shell created (revision 1)\n" {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
}

func TestEditOfAnEnvThatWasAppliedByHand(t *testing.T) {
	_, stderr, code := serveScripted(t, &scripted{}).run(t.Context(), "edit env default/shell")
	if code != 3 || !strings.Contains(stderr, "`atollctl envs import default/shell`") {
		t.Errorf("%d %s", code, stderr)
	}
}
