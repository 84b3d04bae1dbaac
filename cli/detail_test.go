// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

func TestShowSandboxSaysWhyItDoesNotRun(t *testing.T) {
	show := func(output string, s *sandboxv1.Sandbox) string {
		t.Helper()
		var out bytes.Buffer
		must.Succeed(t, showSandbox(&out, output, s))
		return out.String()
	}
	waiting := &sandboxv1.Sandbox{Id: "01-east", Phase: sandboxv1.Phase_STARTING, StatusDetail: &sandboxv1.StatusDetail{
		Reason: "ErrImagePull", Message: "no such\nimage\x1b[31m",
		Events: []*sandboxv1.PodEvent{{Reason: "Failed", Message: "not found", Count: 3,
			LastTime: timestamppb.New(time.Now().Add(-90 * time.Second))}},
	}}
	want := "\nErrImagePull: no such image [31m\n\nLAST  COUNT  EVENT   MESSAGE\n90s   3      Failed  not found\n"
	if got := show("table", waiting); !strings.HasSuffix(got, want) {
		t.Errorf("waiting:\n%q, want the end\n%q", got, want)
	}
	if got := show("json", waiting); !strings.HasPrefix(got, "{") || !strings.HasSuffix(got, "}\n") || !strings.Contains(got, `"lastTime"`) {
		t.Errorf("as JSON: %s", got)
	}
	if got := show("name", waiting); got != "01-east\n" {
		t.Errorf("as name: %q", got)
	}
	failed := &sandboxv1.Sandbox{Id: "01-east", Phase: sandboxv1.Phase_ENDED, StopReason: "Failed", FailureReason: "OOMKilled",
		FailureMessage: "too big"}
	if got := show("table", failed); !strings.HasSuffix(got, "\nOOMKilled: too big\n") {
		t.Errorf("failed: %q", got)
	}
	if got := show("table", &sandboxv1.Sandbox{Id: "01-east", Phase: sandboxv1.Phase_RUNNING}); strings.Count(got, "\n") != 2 {
		t.Errorf("running: %q", got)
	}
}

func TestReadHooks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hooks.yaml")
	write := func(text string) {
		t.Helper()
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("- exec: {command: [sh, -c, 'true']}\n  retries: 2\n- http: {port: 80}\n")
	hooks, err := readHooks(file)
	if err != nil || len(hooks) != 2 || hooks[0].GetFields()["retries"].GetNumberValue() != 2 {
		t.Errorf("%v, %v", hooks, err)
	}
	write("exec: {}")
	if _, err := readHooks(file); err == nil || !strings.Contains(err.Error(), "want a list") {
		t.Errorf("no list: %v", err)
	}
	if hooks, err := readHooks(""); hooks != nil || err != nil {
		t.Errorf("no file: %v, %v", hooks, err)
	}
}

func TestVariablesOf(t *testing.T) {
	own := func(name string) (string, bool) { return "own", name == "OWN" }
	got, err := variablesOf([]string{"A=b=c", "OWN", "E="}, own)
	if err != nil || len(got) != 3 || got["A"] != "b=c" || got["OWN"] != "own" || got["E"] != "" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range [][]string{{"NONE"}, {"=secret"}, {"A=secret", "A=x"}} {
		if _, err := variablesOf(bad, own); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if got, err := variablesOf(nil, own); got != nil || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
}

func TestSecretsOf(t *testing.T) {
	got, err := secretsOf([]string{"TOKEN=creds/token", "A=b.c/d"})
	must.Succeed(t, err)
	if len(got) != 2 || got[0].GetEnv() != "TOKEN" || got[0].GetName() != "creds" || got[0].GetKey() != "token" || got[1].GetName() != "b.c" {
		t.Errorf("%v", got)
	}
	for _, bad := range []string{"", "TOKEN", "TOKEN=creds", "TOKEN=creds/", "TOKEN=/token", "=creds/token"} {
		if _, err := secretsOf([]string{bad}); err == nil || !strings.Contains(err.Error(), "ENV=NAME/KEY") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestInitialFiles(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "tool")
	must.Succeed(t, os.WriteFile(tool, []byte("#!/bin/sh\n"), 0o755))
	got, err := initialFiles([]string{tool + ":bin/tool"})
	must.Succeed(t, err)
	if len(got) != 1 || got[0].GetPath() != "bin/tool" || string(got[0].GetContent()) != "#!/bin/sh\n" || got[0].GetMode() != "0755" {
		t.Errorf("%v", got)
	}
	for _, bad := range []string{tool, tool + ":", ":bin/tool", tool + ".none:a", filepath.Dir(tool) + ":a"} {
		if _, err := initialFiles([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
