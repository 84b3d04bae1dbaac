// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
)

// fakeCommands puts commands on PATH that note how they were called. kind says that there are clusters; it creates none,
// and nothing is ever asked of Kubernetes, as no test gets that far.
func fakeCommands(t *testing.T, clusters string) (calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	script := "#!/bin/sh\necho \"${0##*/} $*\" >>" + log + "\ncase \"$1 $2\" in\n'get clusters') echo '" + clusters + "' ;;\n" +
		"'create cluster') echo 'no such image' >&2; exit 1 ;;\nesac\n"
	for _, name := range []string{"kind", "podman"} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv("KIND_EXPERIMENTAL_PROVIDER", "")
	t.Setenv(KeepEnv, "")
	t.Setenv(ReuseEnv, "")
	t.Setenv(NodeImageEnv, "registry.example/node:1")
	return func() []string {
		content, err := os.ReadFile(log)
		must.Succeed(t, err)
		return strings.Split(strings.TrimSpace(string(content)), "\n")
	}
}

func TestClustersThatAreThereAreLeftAlone(t *testing.T) {
	calls := fakeCommands(t, "hub other")
	_, err := Up(t.Context(), Options{ConfigDir: t.TempDir(), Log: &bytes.Buffer{}}, "hub", "worker-a")
	if err == nil || !strings.Contains(err.Error(), "kind delete clusters hub (or") {
		t.Errorf("want an error that names the command to remove cluster hub, got %v", err)
	}
	if got := calls(); !slices.Equal(got, []string{"kind get clusters"}) {
		t.Errorf("clusters were touched: %v", got)
	}
}

func TestFailedUpRemovesWhatItCreated(t *testing.T) {
	calls := fakeCommands(t, "other")
	// Not even KEEP keeps what never came up.
	t.Setenv(KeepEnv, "1")
	_, err := Up(t.Context(), Options{ConfigDir: "/configs", Log: &bytes.Buffer{}}, "hub")
	if err == nil || !strings.Contains(err.Error(), "no such image") {
		t.Errorf("want kind's own words, got %v", err)
	}
	got := calls()
	if len(got) != 3 || !strings.HasPrefix(got[1], "kind create cluster --name hub --config /configs/hub.yaml --kubeconfig ") ||
		!strings.HasSuffix(got[1], " --wait 3m0s --image registry.example/node:1") ||
		!strings.HasPrefix(got[2], "kind delete clusters --kubeconfig ") || !strings.HasSuffix(got[2], " hub") {
		t.Errorf("called\n%s", strings.Join(got, "\n"))
	}
}

func TestEngineIsKinds(t *testing.T) {
	fakeCommands(t, "")
	t.Setenv("PATH", strings.SplitN(os.Getenv("PATH"), ":", 2)[0])
	if engine, err := findEngine(); err != nil || engine != "podman" {
		t.Errorf("with podman alone on PATH: %q, %v", engine, err)
	}
	t.Setenv("KIND_EXPERIMENTAL_PROVIDER", "nerdctl")
	if engine, err := findEngine(); err != nil || engine != "nerdctl" {
		t.Errorf("with a provider that was chosen: %q, %v", engine, err)
	}
	t.Setenv("KIND_EXPERIMENTAL_PROVIDER", "")
	t.Setenv("PATH", t.TempDir())
	if engine, err := findEngine(); err == nil {
		t.Errorf("with none on PATH: %q", engine)
	}
}
