// SPDX-License-Identifier: Apache-2.0

// Package e2b_test is a federation as E2B clients see it, with real processes and files in its sandboxes (plane.Options.Sandboxd). With the
// build tag node, the stock npm package is the client (tools/e2b-client).
package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"navix.sh/atoll/api/envd"
	processv1 "navix.sh/atoll/api/envd/process"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/e2b"
)

const cluster = "east"

var (
	atoll  *stack.Stack
	origin string // of the gateway
	apiKey string // in E2B's form
	canary = "canary-7f3a9c"
	logs   string

	programs string            // folder of them
	tokens   map[string]string // API keys by their names: all, and red and blue, which are of teams
)

var env = stack.Env{
	Name: "python", Image: "registry.example/python", Port: envd.Port, Members: []stack.Member{{Cluster: cluster, Replicas: 3}},
}

func TestMain(m *testing.M) {
	stack.RunSuite("e2b", func(ctx context.Context, dir, logDir string) (code int, err error) {
		logs = logDir
		bin := filepath.Join(dir, "bin")
		if err := stack.Build(ctx, bin, false); err != nil {
			return 1, err
		}
		set, err := plane.Up(ctx, plane.Options{LogDir: filepath.Join(dir, "planes"), Sandboxd: filepath.Join(bin, "atoll-sandboxd")}, cluster)
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, set.Down(ctx)) }()
		programs = bin
		file, err := writeKeys(ctx, dir)
		if err != nil {
			return 1, err
		}
		addresses, err := stack.FreeAddresses(1)
		if err != nil {
			return 1, err
		}
		origin = "http://" + addresses[0]
		if atoll, err = stack.Start(ctx, set, stack.Options{
			BinDir: bin, LogDir: logDir, Log: os.Stderr, TokenFile: filepath.Join(dir, "all.token"),
			HubArgs: []string{"--api-keys-file=" + file, "--e2b-listen=" + addresses[0]},
		}); err != nil {
			return 1, err
		}
		if err := env.Apply(ctx, atoll.Cluster(cluster)); err != nil {
			return 1, errors.Join(err, atoll.Close())
		}
		code = m.Run()
		return code, atoll.Close()
	})
}

// writeKeys makes the API keys.
func writeKeys(ctx context.Context, dir string) (file string, err error) {
	tokens, file = map[string]string{}, filepath.Join(dir, "keys.yaml")
	var keys []byte
	for _, one := range [][]string{
		{"all", "--all", "--scopes", "admin"}, {"red", "--team", "red", "--namespaces", "default"}, {"blue", "--team", "blue", "--namespaces",
			"default"},
	} {
		path := filepath.Join(dir, one[0]+".token")
		out, err := exec.CommandContext(ctx, filepath.Join(programs, "atoll-hub"), append([]string{"api-key", "new",
			"--token-file", path, "--name"}, one...)...).Output()
		if err != nil {
			return "", fmt.Errorf("making an API key: %w", err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		tokens[one[0]] = strings.TrimSpace(string(text))
		if len(keys) > 0 {
			_, list, _ := strings.Cut(string(out), "keys:\n")
			out = []byte(list)
		}
		keys = append(keys, out...)
	}
	apiKey, err = e2b.ClientKey(tokens["all"])
	return file, errors.Join(err, os.WriteFile(file, keys, 0o600))
}

// ready waits until the Env has idle Pods.
func ready(t *testing.T) {
	t.Helper()
	client, err := atoll.HubClient()
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, time.Minute, "idle Pods", func(ctx context.Context) error {
		idle, err := client.ReadyIdle(ctx, "default", env.Name)
		if err == nil && idle[cluster] < 2 {
			err = fmt.Errorf("%d are idle, want 2", idle[cluster])
		}
		return err
	})
}

// call makes a request of an E2B client.
func call(t *testing.T, method, path, body string, header ...string) (int, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, origin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-API-KEY", apiKey)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if json.Unmarshal(text, &out) != nil {
		out["text"] = string(text)
	}
	return response.StatusCode, out
}

// create makes a sandbox, and returns its id and its token.
func create(t *testing.T, path, extra string) (id, token string) {
	t.Helper()
	status, out := call(t, http.MethodPost, path, `{"templateID":"python","timeout":60`+extra+`}`)
	if status != http.StatusCreated {
		t.Fatalf("create: %d %v", status, out)
	}
	id, token = fmt.Sprint(out["sandboxID"]), fmt.Sprint(out["envdAccessToken"])
	t.Cleanup(func() {
		request, _ := http.NewRequestWithContext(context.Background(), http.MethodDelete, origin+"/sandboxes/"+id, nil)
		request.Header.Set("X-API-KEY", apiKey)
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	})
	return id, token
}

// run runs a command with a shell, and returns what it printed.
func run(t *testing.T, id, token, command string) (string, error) {
	t.Helper()
	client := connect.NewClient[processv1.StartRequest, processv1.StartResponse](http.DefaultClient, origin+envd.ProcessStart,
		connect.WithProtoJSON())
	request := connect.NewRequest(&processv1.StartRequest{Process: &processv1.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", command}}})
	for name, value := range map[string]string{"X-Access-Token": token, "E2b-Sandbox-Id": id, "E2b-Sandbox-Port": fmt.Sprint(envd.Port)} {
		request.Header().Set(name, value)
	}
	stream, err := client.CallServerStream(t.Context(), request)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	var out bytes.Buffer
	for stream.Receive() {
		out.Write(stream.Msg().GetEvent().GetData().GetStdout())
	}
	return out.String(), stream.Err()
}

func TestASandboxRunsCommandsWithItsEnvironment(t *testing.T) {
	ready(t)
	for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
		id, token := create(t, path, `,"envVars":{"SECRET":"`+canary+`"},"metadata":{"a":"b"}`)
		if out, err := run(t, id, token, `echo "got $SECRET"`); err != nil || out != "got "+canary+"\n" {
			t.Errorf("%s: printed %q, %v", path, out, err)
		}
		if status, out := call(t, http.MethodGet, "/sandboxes/"+id, ""); status != http.StatusOK || out["state"] != "running" {
			t.Errorf("%s: details %d %v", path, status, out)
		}
		// The environment stands in no object of the cluster, and in no log.
		for _, kind := range []string{"pods", "events", "sandboxenvs", "sandboxpools"} {
			objects, err := atoll.Cluster(cluster).Kubectl(t.Context(), "get", kind, "-A", "-o", "yaml")
			if err != nil || strings.Contains(objects, canary) {
				t.Errorf("%s has the environment of a sandbox, or cannot be read: %v", kind, err)
			}
		}
		files, err := filepath.Glob(filepath.Join(logs, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no logs: %v", err)
		}
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(canary)) {
				t.Errorf("%s has the environment of a sandbox", file)
			}
		}
		if status, _ := call(t, http.MethodDelete, "/sandboxes/"+id, ""); status != http.StatusNoContent {
			t.Errorf("kill: %d", status)
		}
		if status, _ := call(t, http.MethodDelete, "/sandboxes/"+id, ""); status != http.StatusNotFound {
			t.Errorf("kill again: %d, want 404", status)
		}
	}
}

func TestI14ATokenOpensOneSandbox(t *testing.T) {
	ready(t)
	one, tokenOfOne := create(t, "/sandboxes", "")
	two, _ := create(t, "/sandboxes", "")
	for _, token := range []string{tokenOfOne, "", "x", apiKey, strings.Repeat("A", 100)} {
		if status, out := call(t, http.MethodGet, "/metrics", "", "E2b-Sandbox-Id", two, "X-Access-Token",
			token); status != http.StatusUnauthorized {
			t.Errorf("token %q: %d %v, want 401", token, status, out)
		}
	}
	if status, out := call(t, http.MethodGet, "/metrics", "", "E2b-Sandbox-Id", one, "X-Access-Token", tokenOfOne); status != http.StatusOK {
		t.Errorf("its own token: %d %v", status, out)
	}
}

// A caller with a token is not held to the pace of strangers.
func TestFilesOfManyMegabytes(t *testing.T) {
	ready(t)
	id, token := create(t, "/sandboxes", "")
	want := bytes.Repeat([]byte("0123456789abcdef"), 2<<20)
	path := "/files?username=root&path=" + url.QueryEscape(filepath.Join(t.TempDir(), "large"))
	var form bytes.Buffer
	writer := multipart.NewWriter(&form)
	part, err := writer.CreateFormFile("file", "large")
	if err == nil {
		_, err = part.Write(want)
	}
	if err = errors.Join(err, writer.Close()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	header := []string{"E2b-Sandbox-Id", id, "X-Access-Token", token, "Content-Type", writer.FormDataContentType()}
	if status, out := call(t, http.MethodPost, path, form.String(), header...); status != http.StatusOK {
		t.Fatalf("write: %d %v after %s", status, out, time.Since(began))
	}
	t.Logf("wrote %d MiB in %s", len(want)>>20, time.Since(began))
	if status, out := call(t, http.MethodGet, path, "", header[:4]...); status != http.StatusOK || out["text"] != string(want) {
		t.Errorf("read: %d, %d bytes, want %d", status, len(fmt.Sprint(out["text"])), len(want))
	}
}

func TestWhatIsRefused(t *testing.T) {
	for _, row := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPost, "/sandboxes", `{`, http.StatusBadRequest},
		{http.MethodPost, "/sandboxes", `{}`, http.StatusBadRequest},
		{http.MethodPost, "/sandboxes", `{"templateID":"none"}`, http.StatusNotFound},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","timeout":0}`, http.StatusBadRequest},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","envVars":{"A=B":""}}`, http.StatusBadRequest},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","autoPause":true}`, http.StatusNotImplemented},
		{http.MethodPost, "/sandboxes", `{"templateID":"python","allow_internet_access":false}`, http.StatusNotImplemented},
		{http.MethodGet, "/sandboxes?limit=1000", "", http.StatusBadRequest},
		{http.MethodGet, "/sandboxes/..%2f..%2fkeys", "", http.StatusNotFound},
		{http.MethodGet, "/sandboxes/x/metrics", "", http.StatusNotImplemented},
		{http.MethodGet, "/v3/templates", "", http.StatusNotImplemented},
		{http.MethodGet, "/v1/sandboxes", "", http.StatusNotFound},
	} {
		status, out := call(t, row.method, row.path, row.body)
		if status != row.want || out["message"] == nil || out["code"] != float64(row.want) {
			t.Errorf("%s %s %s: %d %v, want %d with code and message", row.method, row.path, row.body, status, out, row.want)
		}
	}
	if status, _ := call(t, http.MethodGet, "/sandboxes", "", "X-API-KEY", "e2b_00"); status != http.StatusUnauthorized {
		t.Errorf("an unknown key: %d, want 401", status)
	}
}
