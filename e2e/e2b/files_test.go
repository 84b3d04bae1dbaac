// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/client"
	"navix.sh/atoll/pkg/problem"
)

// as is a client with the API key of a name.
func as(t *testing.T, name string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Server: atoll.HubEndpoint().URL(), Token: tokens[name]})
	must.Succeed(t, err)
	return c
}

// claim creates a sandbox by our own API, and releases it at the end.
func claim(t *testing.T, c *client.Client) *client.Sandbox {
	t.Helper()
	ready(t)
	s, err := c.Create(t.Context(), &sandboxv1.CreateSandboxRequest{Env: env.Name})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, s.Close()) })
	return s
}

// reasonOf is the reason of an error of the API.
func reasonOf(err error) problem.Reason {
	var p *problem.Error
	if !errors.As(err, &p) {
		return ""
	}
	return p.Reason
}

func TestFilesOfOurOwnAPI(t *testing.T) {
	ctx, s := t.Context(), claim(t, as(t, "red"))
	want := bytes.Repeat([]byte("0123456789abcdef"), 5<<16) // 5 MiB
	must.Succeed(t, s.Write(ctx, "data/large", bytes.NewReader(want)))
	got, err := s.ReadFile(ctx, "data/large", 6<<20)
	must.Succeed(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back of %d", len(got), len(want))
	}
	must.Succeed(t, s.MakeFolder(ctx, "data/more"))
	must.Succeed(t, s.Move(ctx, "data/large", "data/more/moved"))
	all, err := s.List(ctx, "data", 2)
	must.Succeed(t, err)
	if len(all) != 2 || all[0].Type != sandboxv1.FileTypeDirectory || all[1].Name != "moved" || all[1].Size != int64(len(want)) {
		t.Errorf("data has %+v", all)
	}
	one, err := s.Stat(ctx, "data/more")
	must.Succeed(t, err)
	if one.Type != sandboxv1.FileTypeDirectory {
		t.Errorf("data/more is %+v", one)
	}
	must.Succeed(t, s.Remove(ctx, "data"))
	if _, err := s.Open(ctx, "data/more/moved"); reasonOf(err) != problem.NotFound {
		t.Errorf("what was removed: %v", err)
	}
}

// What a sandbox begins with is there when the create returns, and in nothing that describes the sandbox.
func TestASandboxBeginsWithFiles(t *testing.T) {
	ctx, c := t.Context(), as(t, "red")
	ready(t)
	folder := filepath.Join(t.TempDir(), "work") // of this machine: a sandbox's processes are
	s, err := c.Create(ctx, &sandboxv1.CreateSandboxRequest{
		Env: delivered.Name, Workdir: folder, EnvVars: map[string]string{"SECRET": canary},
		Files: []*sandboxv1.SandboxFile{{Path: "bin/tool", Content: []byte("#!/bin/sh\necho " + canary + " $SECRET\n"), Mode: "0755"}},
	})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, s.Close()) })
	r, err := s.Run(ctx, "sh", "-c", "pwd; bin/tool")
	must.Succeed(t, err)
	if want := folder + "\n" + canary + " " + canary + "\n"; string(r.Stdout) != want {
		t.Errorf("printed %q%q, want %q", r.Stdout, r.Stderr, want)
	}
	wantNoCanary(t)
	_, err = c.Create(ctx, &sandboxv1.CreateSandboxRequest{
		Env: env.Name, Files: []*sandboxv1.SandboxFile{{Path: "a", Content: []byte(canary)}},
	})
	if reasonOf(err) != problem.Invalid || !strings.Contains(err.Error(), "files") || strings.Contains(err.Error(), canary) {
		t.Errorf("where no template has the daemon: %v", err)
	}
	_, err = c.Create(ctx, &sandboxv1.CreateSandboxRequest{Env: delivered.Name, ExecUser: "no-such-account"})
	if reasonOf(err) != problem.Invalid || !strings.Contains(err.Error(), "execUser") {
		t.Errorf("an account that is not there: %v", err)
	}
	must.Succeed(t, s.Remove(ctx, "bin"))
}

// sleep begins a command that goes on, and returns where its result is once it has ended.
func sleep(t *testing.T, s *client.Sandbox) <-chan *client.Result {
	t.Helper()
	ended := make(chan *client.Result, 1)
	first, begun := io.Pipe()
	go func() {
		r, err := s.RunCommand(context.WithoutCancel(t.Context()), client.Command{
			Args: []string{"sh", "-c", "echo begun; exec sleep 1000"}, Stdout: begun,
		})
		must.Succeed(t, err)
		ended <- r
	}()
	_, err := first.Read(make([]byte, 16))
	must.Succeed(t, err)
	return ended
}

func TestCommandsOfOurOwnAPI(t *testing.T) {
	ctx, s := t.Context(), claim(t, as(t, "red"))
	got, err := s.Run(ctx, "sh", "-c", "echo out; echo err >&2; exit 7")
	must.Succeed(t, err)
	if got.ExitCode != 7 || string(got.Stdout) != "out\n" || string(got.Stderr) != "err\n" {
		t.Errorf("%+v", got)
	}
	var out strings.Builder
	got, err = s.RunCommand(ctx, client.Command{
		Args: []string{"sh", "-c", `cat; echo "$A"; pwd`}, Env: map[string]string{"A": "b"}, Dir: "/", Stdin: "in\n", Stdout: &out,
	})
	must.Succeed(t, err)
	if out.String() != "in\nb\n/\n" || got.ExitCode != 0 {
		t.Errorf("printed %q, %+v", &out, got)
	}
	ended := sleep(t, s)
	list, err := s.Processes(ctx)
	must.Succeed(t, err)
	if len(list) != 1 || list[0].Command[0] != "sh" {
		t.Fatalf("processes: %+v", list)
	}
	must.Succeed(t, s.Signal(ctx, list[0].PID, "SIGKILL"))
	if r := <-ended; r.ExitCode != -1 || r.Status != "signal: killed" {
		t.Errorf("%+v", r)
	}
}

// A sandbox of an E2B client is one of our own API, and the other way round: both set the same token.
func TestBothAPIsUseASandbox(t *testing.T) {
	ctx, c := t.Context(), as(t, "all")
	id, token := create(t, "/sandboxes", `,"envVars":{"SECRET":"s"}`)
	of := c.Of(id)
	must.Succeed(t, of.WriteFile(ctx, "note", []byte("from ours")))
	if out, err := run(t, id, token, `cat note; echo " $SECRET"`); err != nil || out != "from ours s\n" {
		t.Errorf("%q, %v", out, err)
	}
	if r, err := of.Run(ctx, "sh", "-c", `echo "$SECRET"`); err != nil || string(r.Stdout) != "s\n" {
		t.Errorf("%+v, %v", r, err)
	}
	s := claim(t, c)
	must.Succeed(t, s.WriteFile(ctx, "note", []byte("first")))
	if out, err := run(t, s.ID(), connect(t, s.ID()), "cat note"); err != nil || out != "first" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestI14FilesAreOfTheirTeam(t *testing.T) {
	ctx, s := t.Context(), claim(t, as(t, "red"))
	must.Succeed(t, s.WriteFile(ctx, "secret", []byte("red's")))
	other := as(t, "blue").Of(s.ID())
	_, opened := other.Open(ctx, "secret")
	_, ran := other.Run(ctx, "true")
	_, listed := other.Processes(ctx)
	_, stated := other.Stat(ctx, "secret")
	for what, err := range map[string]error{
		"open": opened, "run": ran, "processes": listed, "stat": stated, "write": other.WriteFile(ctx, "secret", nil),
		"remove": other.Remove(ctx, "secret"), "move": other.Move(ctx, "secret", "x"), "signal": other.Signal(ctx, 1, "SIGKILL"),
	} {
		if reasonOf(err) != problem.NotFound {
			t.Errorf("%s by another team: %v, want NOT_FOUND", what, err)
		}
	}
	// The audit has who did what to which sandbox, and neither a path nor a command.
	log, err := os.ReadFile(filepath.Join(atoll.HubData(), "audit", "audit.log"))
	must.Succeed(t, err)
	lines := ""
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, s.ID()) {
			lines += line
		}
	}
	if !strings.Contains(lines, `"verb":"files"`) || !strings.Contains(lines, `"sandboxes/exec"`) || !strings.Contains(lines, "blue") ||
		strings.Contains(lines, "secret") {
		t.Errorf("the audit of the sandbox:\n%s", lines)
	}
}
