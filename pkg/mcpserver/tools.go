// SPDX-License-Identifier: Apache-2.0

package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/client"
)

const (
	maxText        = 128 << 10 // of a file, and of a command's stdout or stderr
	maxSeconds     = 3600
	defaultSeconds = 120
	maxListed      = 1000
)

type createIn struct {
	Env   string `json:"env,omitempty" jsonschema:"the environment, as NAME or NAMESPACE/NAME; default the session's"`
	Image string `json:"image,omitempty" jsonschema:"a container image to run, if the environment allows it; default its own"`
}

type created struct {
	Sandbox string `json:"sandbox" jsonschema:"the id, for the other tools"`
	Env     string `json:"env"`
	Cluster string `json:"cluster"`
}

type runIn struct {
	Sandbox string            `json:"sandbox,omitempty" jsonschema:"a sandbox of this session; may be left out if there is one"`
	Command []string          `json:"command" jsonschema:"the program and its arguments; for a shell: sh, -c and the line"`
	Stdin   string            `json:"stdin,omitempty" jsonschema:"what the command reads"`
	Workdir string            `json:"workdir,omitempty" jsonschema:"the folder to run in; default the home of the user"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"more environment variables"`
	Seconds int               `json:"seconds,omitempty" jsonschema:"the command is killed after so many seconds; default 120, at most 3600"`
}

type ran struct {
	ExitCode  int    `json:"exitCode" jsonschema:"-1: a signal or the timeout ended it"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	TimedOut  bool   `json:"timedOut,omitempty"`
	Truncated bool   `json:"truncated,omitempty" jsonschema:"more was printed than is here; write it to a file and read parts of that"`
}

type fileIn struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"a sandbox of this session; may be left out if there is one"`
	Path    string `json:"path" jsonschema:"a path in the sandbox; one that is not absolute is below the home of the user"`
}

type text struct {
	Text string `json:"text"`
}

type writeIn struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"a sandbox of this session; may be left out if there is one"`
	Path    string `json:"path" jsonschema:"a path in the sandbox; one that is not absolute is below the home of the user"`
	Text    string `json:"text" jsonschema:"the whole content of the file"`
}

type written struct {
	Path string `json:"path"`
	Size int    `json:"size"`
}

type listIn struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"a sandbox of this session; may be left out if there is one"`
	Path    string `json:"path,omitempty" jsonschema:"a folder in the sandbox; default: the sandboxes of this session are listed"`
}

type listed struct {
	Sandboxes []created `json:"sandboxes,omitempty"`
	Files     []file    `json:"files,omitempty"`
	Truncated bool      `json:"truncated,omitempty" jsonschema:"the folder has more files"`
}

type file struct {
	Path string `json:"path"`
	Type string `json:"type" jsonschema:"FILE, DIRECTORY or SYMLINK"`
	Size int64  `json:"size"`
}

type portIn struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"a sandbox of this session; may be left out if there is one"`
	Port    int    `json:"port" jsonschema:"where a server in the sandbox listens, 1 to 65535"`
}

type exposed struct {
	URL  string `json:"url" jsonschema:"where the port's HTTP is reached, while the sandbox lasts"`
	Note string `json:"note"`
}

type releaseIn struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"a sandbox of this session; may be left out if there is one"`
}

type released struct {
	Released string `json:"released"`
}

func (s *Session) addTools() {
	add(s, "create", "Create a sandbox: a container of its own to run commands in.", s.toolCreate)
	add(s, "run", "Run a command in a sandbox, and return what it printed and its exit code.", s.toolRun)
	add(s, "read", fmt.Sprintf("Read a text file of at most %d KiB in a sandbox.", maxText>>10), s.toolRead)
	add(s, "write", "Write a text file in a sandbox, with the folders that it needs.", s.toolWrite)
	add(s, "list", "List a folder of a sandbox, or without a path the sandboxes of this session.", s.toolList)
	add(s, "port", "Return the URL of a port of a sandbox, where an HTTP server in it is reached.", s.toolPort)
	add(s, "release", "Release a sandbox. All that is in it is gone.", s.toolRelease)
}

func add[In, Out any](s *Session, name, description string, f func(context.Context, In) (Out, error)) {
	mcp.AddTool(s.server, &mcp.Tool{Name: name, Description: description},
		func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
			select {
			case s.tools <- struct{}{}:
				defer func() { <-s.tools }()
			default:
				return nil, *new(Out), fmt.Errorf("%d calls of tools are under way in this session, which is the most; wait for one", maxCalls)
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(s.ending, cancel)()
			out, err := f(ctx, in)
			return nil, out, err
		})
}

func shown(s *client.Sandbox) created {
	return created{Sandbox: s.ID(), Env: s.Info().GetNamespace() + "/" + s.Info().GetEnv(), Cluster: s.Info().GetClusterId()}
}

func (s *Session) toolCreate(ctx context.Context, in createIn) (created, error) {
	env := cmp.Or(in.Env, s.opts.Env)
	if env == "" {
		return created{}, errors.New("env is missing: the name of an environment")
	}
	request := &sandboxv1.CreateSandboxRequest{Env: env, Image: in.Image}
	if namespace, name, ok := strings.Cut(env, "/"); ok {
		request.Namespace, request.Env = namespace, name
	}
	sandbox, err := s.create(ctx, request)
	if err != nil {
		return created{}, err
	}
	return shown(sandbox), nil
}

func (s *Session) toolRun(ctx context.Context, in runIn) (ran, error) {
	if in.Seconds < 0 || in.Seconds > maxSeconds {
		return ran{}, fmt.Errorf("seconds: %d is not valid, want 1 to %d", in.Seconds, maxSeconds)
	}
	sandbox, err := s.sandbox(in.Sandbox)
	if err != nil {
		return ran{}, err
	}
	r, err := sandbox.RunCommand(ctx, client.Command{
		Args: in.Command, Env: in.Env, Dir: in.Workdir, Stdin: in.Stdin,
		Timeout: time.Duration(cmp.Or(in.Seconds, defaultSeconds)) * time.Second,
	})
	if err != nil {
		return ran{}, err
	}
	out := ran{ExitCode: r.ExitCode, TimedOut: r.TimedOut, Truncated: r.Truncated || len(r.Stdout) > maxText || len(r.Stderr) > maxText}
	out.Stdout, out.Stderr = clipped(r.Stdout), clipped(r.Stderr)
	return out, nil
}

func clipped(output []byte) string {
	return strings.ToValidUTF8(string(output[:min(len(output), maxText)]), "\uFFFD")
}

func (s *Session) toolRead(ctx context.Context, in fileIn) (text, error) {
	sandbox, err := s.sandbox(in.Sandbox)
	if err != nil {
		return text{}, err
	}
	content, err := sandbox.ReadFile(ctx, in.Path, maxText)
	if err != nil {
		return text{}, err
	}
	if !utf8.Valid(content) {
		return text{}, fmt.Errorf("%s is not text in UTF-8; run a command such as base64 or od on it", in.Path)
	}
	return text{string(content)}, nil
}

func (s *Session) toolWrite(ctx context.Context, in writeIn) (written, error) {
	sandbox, err := s.sandbox(in.Sandbox)
	if err != nil {
		return written{}, err
	}
	return written{in.Path, len(in.Text)}, sandbox.WriteFile(ctx, in.Path, []byte(in.Text))
}

func (s *Session) toolList(ctx context.Context, in listIn) (listed, error) {
	if in.Path == "" {
		return s.own(), nil
	}
	sandbox, err := s.sandbox(in.Sandbox)
	if err != nil {
		return listed{}, err
	}
	all, err := sandbox.List(ctx, in.Path, 1)
	if err != nil {
		return listed{}, err
	}
	out := listed{Truncated: len(all) > maxListed}
	for _, f := range all[:min(len(all), maxListed)] {
		out.Files = append(out.Files, file{f.Path, f.Type, f.Size})
	}
	return out, nil
}

// own are the session's sandboxes.
func (s *Session) own() (out listed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sandbox := range s.sandboxes {
		out.Sandboxes = append(out.Sandboxes, shown(sandbox))
	}
	return out
}

// portNote says what a request to a port's URL requires. It does not contain the credentials, because a model need not see them.
const portNote = "requests need the API key of this session's user, as the header Authorization: Bearer KEY"

// toolPort returns the URL of a port. It changes nothing: callers that may reach a sandbox may reach all its ports.
func (s *Session) toolPort(_ context.Context, in portIn) (exposed, error) {
	sandbox, err := s.sandbox(in.Sandbox)
	if err != nil {
		return exposed{}, err
	}
	if in.Port < 1 || in.Port > 65535 {
		return exposed{}, fmt.Errorf("port: %d is not valid, want 1 to 65535", in.Port)
	}
	url := sandbox.PortURL(in.Port)
	if s.opts.Origin != "" {
		url = s.opts.Origin + strings.TrimPrefix(url, insideURL)
	}
	return exposed{url, portNote}, nil
}

func (s *Session) toolRelease(ctx context.Context, in releaseIn) (released, error) {
	id, err := s.release(ctx, in.Sandbox)
	return released{id}, err
}
