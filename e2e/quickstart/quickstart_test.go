// SPDX-License-Identifier: Apache-2.0

// Package quickstart_test runs the commands of docs/quickstart.md, those that tools/quickstart runs, without clusters.
// atoll-hub, helm and `atollctl pki` are the real ones; testdata/played stands in for the rest, and fails where a command names
// a file, a make target, a cluster, an image, an Env or a Secret that there is none of. Words and flags of atollctl's other
// commands are held against the program by the tests of package cli.
package quickstart_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
)

func TestQuickStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	root, err := filepath.Abs("../..")
	must.Succeed(t, err)
	played, err := filepath.Abs("testdata/played")
	must.Succeed(t, err)
	// The test depends on what the commands read beside the sources and charts.
	for _, name := range []string{"docs/quickstart.md", "Makefile", "tools/quickstart", "tools/images/main.go",
		"e2e/quickstart/testdata/played"} {
		_, err = os.ReadFile(filepath.Join(root, name))
		must.Succeed(t, err)
	}
	steps, err := exec.CommandContext(ctx, filepath.Join(root, "tools", "quickstart"), "--print").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, steps)
	}
	scratch := t.TempDir()
	must.Succeed(t, stack.Build(ctx, filepath.Join(scratch, "programs"), false))
	helm, err := harness.New(ctx, scratch)
	must.Succeed(t, err)
	links := map[string]string{"bin/atollctl": played, "bin/atoll-hub": filepath.Join(scratch, "programs", "atoll-hub")}
	for _, name := range []string{"charts", "examples", "kind-configs", "Makefile", "tools"} {
		links[name] = filepath.Join(root, name)
	}
	for _, name := range []string{"kind", "kubectl", "helm", "make", "curl", "openssl"} {
		links["path/"+name] = played
	}
	for link, target := range links {
		link = filepath.Join(scratch, link)
		must.Succeed(t, errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(target, link)))
	}
	cmd := exec.CommandContext(ctx, "bash", "-euxo", "pipefail", "-c", string(steps))
	cmd.Dir = scratch
	path := os.Getenv("PATH")
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(scratch, "path")+":"+path, "REAL_PATH="+path, "REAL_HELM="+helm.Path(),
		"HOME="+scratch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
