// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// ctl is atollctl as team red uses it.
func ctl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "atollctl"), args...)
	cmd.Env = append(os.Environ(), "ATOLL_SERVER="+atoll.HubEndpoint().Address, "ATOLL_PLAINTEXT=true", "ATOLL_TOKEN="+tokens["red"],
		"ATOLL_CONFIG_HOME="+os.DevNull)
	if strings.HasPrefix(atoll.HubEndpoint().URL(), "https") {
		panic("the hub serves TLS")
	}
	return cmd
}

// output runs a command, and returns its stdout, its stderr and its exit code.
func output(t *testing.T, args ...string) (out, errOut string, code int) {
	t.Helper()
	cmd := ctl(t.Context(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// none waits until team red has no sandbox.
func none(t *testing.T) {
	t.Helper()
	c := as(t, "red")
	wait.For(t, 20*time.Second, "the release", func(ctx context.Context) error {
		all, err := c.List(ctx, nil)
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%d sandboxes are left: %v", len(all), all)
		}
		return err
	})
}

func TestRunOfTheCLI(t *testing.T) {
	ready(t)
	none(t)
	out, errOut, code := output(t, "run", "--env", env.Name, "--", "sh", "-c", "echo out; echo err >&2; exit 5")
	if out != "out\n" || errOut != "err\n" || code != 5 {
		t.Errorf("run: %q, %q, exit code %d", out, errOut, code)
	}
	none(t)
	cmd := ctl(t.Context(), "run", "--env", env.Name, "-i", "--", "cat")
	cmd.Stdin = strings.NewReader("by exec\n")
	if out, err := cmd.Output(); err != nil || string(out) != "by exec\n" {
		t.Errorf("run -i: %q, %v", out, err)
	}
	none(t)
	if _, errOut, code := output(t, "run", "--env", "no-such-env", "--", "true"); code != 3 {
		t.Errorf("without an Env: %q, exit code %d, want 3", errOut, code)
	}
	if _, errOut, code := output(t, "run", "--env", env.Name); code != 2 {
		t.Errorf("without a command: %q, exit code %d, want 2", errOut, code)
	}
}

func TestCtrlCReleasesWhatRunHas(t *testing.T) {
	ready(t)
	none(t)
	cmd := ctl(t.Context(), "run", "--env", env.Name, "--", "sh", "-c", "echo begun; exec sleep 1000")
	printed, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	_, err = io.ReadFull(printed, make([]byte, len("begun\n")))
	must.Succeed(t, err)
	must.Succeed(t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("it ends with %v, want exit code 130", err)
	}
	none(t)
}

func TestCopiesAndProcessesOfTheCLI(t *testing.T) {
	s := claim(t, as(t, "red"))
	here, there := t.TempDir(), t.TempDir() // both are of this machine: a sandbox's processes are
	must.Succeed(t, os.MkdirAll(filepath.Join(here, "src", "bin"), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(here, "src", "bin", "tool"), []byte("#!/bin/sh\n"), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(here, "data"), bytes.Repeat([]byte("data"), 1<<18), 0o644))
	for _, args := range [][]string{
		{"cp", filepath.Join(here, "data"), s.ID() + ":" + there + "/"},
		{"cp", s.ID() + ":" + there + "/data", filepath.Join(here, "back")},
		{"cp", filepath.Join(here, "src"), s.ID() + ":" + there + "/src"},
		{"cp", s.ID() + ":" + there + "/src", filepath.Join(here, "copy")},
	} {
		if out, errOut, code := output(t, args...); code != 0 {
			t.Fatalf("atollctl %v: %s%s, exit code %d", args, out, errOut, code)
		}
	}
	for file, like := range map[string]string{
		filepath.Join(there, "data"): "data", filepath.Join(here, "back"): "data",
		filepath.Join(there, "src", "bin", "tool"): "src/bin/tool", filepath.Join(here, "copy", "bin", "tool"): "src/bin/tool",
	} {
		got, err := os.ReadFile(file)
		must.Succeed(t, err)
		want, err := os.ReadFile(filepath.Join(here, like))
		must.Succeed(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, want %d", file, len(got), len(want))
		}
	}
	if info, err := os.Stat(filepath.Join(here, "copy", "bin", "tool")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("the copy of a program: %v, %v", info, err)
	}
	if out, _, code := output(t, "cp", s.ID()+":"+there+"/src/bin/tool", "-"); out != "#!/bin/sh\n" || code != 0 {
		t.Errorf("cp to -: %q, exit code %d", out, code)
	}
	for want, args := range map[int][]string{
		3: {"cp", s.ID() + ":" + there + "/none", here}, 2: {"cp", "a", "b"}, 1: {"cp", filepath.Join(here, "none"), s.ID() + ":/tmp/x"},
	} {
		if _, errOut, code := output(t, args...); code != want {
			t.Errorf("atollctl %v: %s, exit code %d, want %d", args, errOut, code, want)
		}
	}
	ended := sleep(t, s)
	pid, _, _ := output(t, "ps", s.ID(), "-o", "name")
	if out, _, code := output(t, "ps", s.ID()); !strings.Contains(out, "sh -c echo begun; exec sleep 1000") || code != 0 {
		t.Errorf("ps: %q, exit code %d", out, code)
	}
	if _, errOut, code := output(t, "ps", s.ID(), "--signal", "SIGTERM", "--pid", strings.TrimSpace(pid)); code != 0 {
		t.Fatalf("ps --signal: %s, exit code %d", errOut, code)
	}
	if r := <-ended; r.Status != "signal: terminated" {
		t.Errorf("%+v", r)
	}
}

// tool calls a tool of a session.
func tool(t *testing.T, session *mcp.ClientSession, name string, in, out any) (failure string) {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: in})
	must.Succeed(t, err)
	if result.IsError {
		return result.Content[0].(*mcp.TextContent).Text
	}
	text, err := json.Marshal(result.StructuredContent)
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(text, out))
	return ""
}

func TestMCPSession(t *testing.T) {
	ready(t)
	none(t)
	agent := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	cmd := ctl(context.WithoutCancel(t.Context()), "mcp", "--env", env.Name, "--max-sandboxes", "1")
	cmd.Stderr = os.Stderr
	session, err := agent.Connect(t.Context(), &mcp.CommandTransport{Command: cmd, TerminateDuration: 30 * time.Second}, nil)
	must.Succeed(t, err)
	var names []string
	for one, err := range session.Tools(t.Context(), nil) {
		must.Succeed(t, err)
		names = append(names, one.Name)
	}
	if got := strings.Join(names, " "); got != "create list port read release run write" {
		t.Errorf("the tools are %s", got)
	}
	type args map[string]any
	var created struct{ Sandbox string }
	if failure := tool(t, session, "create", args{}, &created); failure != "" || created.Sandbox == "" {
		t.Fatalf("create: %s", failure)
	}
	if failure := tool(t, session, "create", args{}, &struct{}{}); !strings.Contains(failure, "release one first") {
		t.Errorf("a second sandbox: %q", failure)
	}
	if failure := tool(t, session, "write", args{"path": "dir/hello", "text": "Hello\n"}, &struct{}{}); failure != "" {
		t.Errorf("write: %s", failure)
	}
	var ran struct {
		Stdout   string
		ExitCode int
	}
	failure := tool(t, session, "run", args{"sandbox": created.Sandbox, "command": []string{"sh", "-c", "cat dir/hello; exit 4"}}, &ran)
	if failure != "" || ran.Stdout != "Hello\n" || ran.ExitCode != 4 {
		t.Errorf("run: %s %+v", failure, ran)
	}
	var read struct{ Text string }
	if failure := tool(t, session, "read", args{"path": "dir/hello"}, &read); failure != "" || read.Text != "Hello\n" {
		t.Errorf("read: %s %+v", failure, read)
	}
	var exposed struct{ URL string }
	if failure := tool(t, session, "port", args{"port": 8000}, &exposed); failure != "" ||
		!strings.HasSuffix(exposed.URL, "/v1/sandboxes/"+created.Sandbox+"/ports/8000/") || !strings.HasPrefix(exposed.URL, "http") {
		t.Errorf("port: %s %+v", failure, exposed)
	}
	if failure := tool(t, session, "port", args{"port": 0}, &exposed); !strings.Contains(failure, "want 1 to 65535") {
		t.Errorf("a port that is none: %q", failure)
	}
	var listed struct {
		Files     []struct{ Path string }
		Sandboxes []struct{ Sandbox string }
	}
	if failure := tool(t, session, "list", args{"path": "dir"}, &listed); failure != "" || len(listed.Files) != 1 ||
		!strings.HasSuffix(listed.Files[0].Path, "dir/hello") {
		t.Errorf("list: %s %+v", failure, listed)
	}
	if failure := tool(t, session, "list", args{}, &listed); failure != "" || len(listed.Sandboxes) != 1 {
		t.Errorf("list of sandboxes: %s %+v", failure, listed)
	}
	other := claim(t, as(t, "red"))
	if failure := tool(t, session, "run", args{"sandbox": other.ID(), "command": []string{"true"}}, &ran); !strings.Contains(failure,
		"not of this session") {
		t.Errorf("a sandbox of another session: %q", failure)
	}
	must.Succeed(t, other.Close())
	if failure := tool(t, session, "release", args{}, &struct{}{}); failure != "" {
		t.Errorf("release: %s", failure)
	}
	none(t)
	if failure := tool(t, session, "create", args{}, &created); failure != "" {
		t.Fatalf("create: %s", failure)
	}
	must.Succeed(t, session.Close()) // the agent leaves
	none(t)
}

// bearerOf is a transport with an API key.
type bearerOf string

func (b bearerOf) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func TestMCPOverHTTP(t *testing.T) {
	ready(t)
	none(t)
	connect := func(token string) (*mcp.ClientSession, error) {
		return mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: atoll.HubEndpoint().URL() + "/mcp?env=" + env.Name, HTTPClient: &http.Client{Transport: bearerOf(token)},
		}, nil)
	}
	if _, err := connect("atoll_none"); err == nil {
		t.Error("a session without a key")
	}
	session, err := connect(tokens["red"])
	must.Succeed(t, err)
	type args map[string]any
	var created struct{ Sandbox string }
	if failure := tool(t, session, "create", args{}, &created); failure != "" || created.Sandbox == "" {
		t.Fatalf("create: %s", failure)
	}
	if failure := tool(t, session, "write", args{"path": "hello", "text": "Hello\n"}, &struct{}{}); failure != "" {
		t.Errorf("write: %s", failure)
	}
	var ran struct {
		Stdout   string
		ExitCode int
	}
	if failure := tool(t, session, "run", args{"command": []string{"sh", "-c", "cat hello; exit 4"}}, &ran); failure != "" ||
		ran.Stdout != "Hello\n" || ran.ExitCode != 4 {
		t.Errorf("run: %s %+v", failure, ran)
	}
	if failure := tool(t, session, "create", args{"env": "no-such-env"}, &created); !strings.Contains(failure, "no-such-env") {
		t.Errorf("an Env that is not there: %q", failure)
	}
	// The sandbox is that of the key's team.
	if all, err := as(t, "red").List(t.Context(), nil); err != nil || len(all) != 1 || all[0].GetTeam() != "red" {
		t.Errorf("team red has %v, %v", all, err)
	}
	must.Succeed(t, session.Close()) // the agent leaves
	none(t)
}
