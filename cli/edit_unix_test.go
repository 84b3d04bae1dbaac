// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

// editable returns a server whose catalogue has an Env, and makes a shell script the editor. dir gets the temporary files.
func editable(t *testing.T, script string) (server runner, dir string) {
	t.Helper()
	dir = t.TempDir()
	file := filepath.Join(t.TempDir(), "editor")
	must.Succeed(t, os.WriteFile(file, []byte(script), 0o600))
	t.Setenv("ATOLL_EDITOR", "sh "+file)
	t.Setenv("TMPDIR", dir)
	m, err := structpb.NewStruct(map[string]any{
		"kind": "SandboxEnv", "metadata": map[string]any{"name": "shell", "namespace": "default"},
	})
	must.Succeed(t, err)
	return serveScripted(t, &scripted{env: &sandboxv1.Env{
		Namespace: "default", Name: "shell", Catalog: &sandboxv1.CatalogEntry{Revision: 1, Manifest: m},
	}}), dir
}

// TestAnEditThatFailsKeepsWhatWasWritten, and names its file. No other edit leaves a file.
func TestAnEditThatFailsKeepsWhatWasWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		code   exitCode
		kept   string // what the file that is kept has; empty: none is
	}{
		"what is written is no manifest":       {`echo "kind: {" >> "$1"`, exitUsage, "kind: {"},
		"the editor fails, and has written":    {`echo "# mine" >> "$1"; exit 1`, 1, "# mine"},
		"the editor fails, and has not":        {"exit 1", 1, ""},
		"nothing is written":                   {"", 0, ""},
		"what is written is in the catalogue":  {`echo "# mine" >> "$1"`, 0, ""},
		"a manifest of another Env is written": {`echo "metadata: {name: x}" > "$1"; echo "kind: SandboxEnv" >> "$1"`, exitUsage, "name: x"},
	} {
		t.Run(name, func(t *testing.T) {
			server, dir := editable(t, tc.script)
			_, stderr, code := server.run(t.Context(), "edit env default/shell")
			if code != tc.code {
				t.Errorf("the exit code is %d, want %d\n%s", code, tc.code, stderr)
			}
			left := namesIn(t, dir)
			if tc.kept == "" {
				if left != "" {
					t.Errorf("%s is left", left)
				}
				return
			}
			file := filepath.Join(dir, left)
			text, err := os.ReadFile(file)
			if err != nil || !strings.Contains(string(text), tc.kept) || !strings.Contains(stderr, "is kept in "+file+"\n") {
				t.Errorf("%s has %q, %v, and atollctl says %q", file, text, err, stderr)
			}
		})
	}
}

// TestAnInterruptWhileTheEditorRunsIsForTheEditor: a terminal sends it to both. It ends neither the editor nor the edit.
func TestAnInterruptWhileTheEditorRunsIsForTheEditor(t *testing.T) {
	server, dir := editable(t, `kill -INT $PPID; echo "# mine" >> "$1"`)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	ctx, stop := interruptible()
	defer stop()
	stdout, stderr, code := server.run(ctx, "edit env default/shell")
	if code != 0 || stdout != "sandboxenv default/shell unchanged (revision 1)\n" {
		t.Fatalf("%d %s%s", code, stdout, stderr)
	}
	if left := namesIn(t, dir); left != "" {
		t.Errorf("%s is left", left)
	}
	<-interrupts // or it would end the tests
	<-ctx.Done()
}
