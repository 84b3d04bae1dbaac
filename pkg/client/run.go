// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

const (
	// maxKept is how much of stdout, and of stderr, a Result contains.
	maxKept  = 4 << 20
	maxEvent = 4 << 20
)

// Command is a command to run in a sandbox, without a shell.
type Command struct {
	Args    []string
	Env     map[string]string // added to the sandbox's variables
	Dir     string            // default: the home of its user
	User    string            // default: the container's user
	Stdin   string
	Timeout time.Duration // after it the command is killed; 0: no timeout

	// Stdout and Stderr receive the command's output while it runs. Nil: the Result contains it.
	Stdout, Stderr io.Writer
}

// Result is the result of a command.
type Result struct {
	ExitCode  int    // -1: a signal or the timeout ended it
	Status    string // describes the signal that ended it
	TimedOut  bool
	Stdout    []byte // if there was no writer
	Stderr    []byte
	Truncated bool // there was more output than Result contains
}

// Run runs a command, and returns when it has ended. A nonzero exit code is not an error.
func (s *Sandbox) Run(ctx context.Context, args ...string) (*Result, error) {
	return s.RunCommand(ctx, Command{Args: args})
}

// RunCommand is Run with more options. If its context ends, the command continues to run; Signal can end it.
func (s *Sandbox) RunCommand(ctx context.Context, command Command) (*Result, error) {
	in := sandboxv1.Command{Command: command.Args, EnvVars: command.Env, Workdir: command.Dir, Stdin: command.Stdin}
	if command.Timeout > 0 {
		in.Timeout = command.Timeout.String()
	}
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("writing a command: %w", err)
	}
	query := url.Values{}
	if command.User != "" {
		query.Set("user", command.User)
	}
	response, err := s.client.send(ctx, http.MethodPost, s.path("/processes"), query, bytes.NewReader(text),
		"Content-Type", "application/json", "Accept", "text/event-stream")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	result, err := follow(response.Body, &command)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("running a command: %w", context.Cause(ctx))
	}
	return result, err
}

var errBroke = errors.New("the connection broke before the command had ended")

// follow reads the events of a command until its end.
func follow(from io.Reader, command *Command) (*Result, error) {
	result := &Result{}
	out, errOut := sink{to: command.Stdout, kept: &result.Stdout}, sink{to: command.Stderr, kept: &result.Stderr}
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 64<<10), maxEvent)
	kind := ""
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		if field == "event" {
			kind = value
		}
		if field != "data" {
			continue
		}
		var err error
		switch kind {
		case sandboxv1.CommandStdout:
			err = out.take(value)
		case sandboxv1.CommandStderr:
			err = errOut.take(value)
		case sandboxv1.CommandExited:
			var exit sandboxv1.CommandExit
			if err := json.Unmarshal([]byte(value), &exit); err != nil {
				return nil, fmt.Errorf("reading how the command ended: %w", err)
			}
			result.ExitCode, result.Status, result.TimedOut = int(exit.ExitCode), exit.Status, exit.TimedOut
			result.Truncated = out.truncated || errOut.truncated
			return result, nil
		case sandboxv1.CommandFailed:
			return nil, problem.Read(http.StatusInternalServerError, strings.NewReader(value))
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.Join(errBroke, lines.Err())
}

// sink forwards output to a writer, or keeps the first part of it.
type sink struct {
	to        io.Writer
	kept      *[]byte
	truncated bool
}

func (s *sink) take(text string) error {
	var output sandboxv1.CommandOutput
	if err := json.Unmarshal([]byte(text), &output); err != nil {
		return fmt.Errorf("reading what the command prints: %w", err)
	}
	if s.to != nil {
		if _, err := s.to.Write(output.Data); err != nil {
			return fmt.Errorf("passing on what the command prints: %w", err)
		}
		return nil
	}
	room := maxKept - len(*s.kept)
	s.truncated = s.truncated || len(output.Data) > room
	*s.kept = append(*s.kept, output.Data[:min(len(output.Data), room)]...)
	return nil
}

// Processes returns the running processes.
func (s *Sandbox) Processes(ctx context.Context) ([]sandboxv1.Process, error) {
	var out sandboxv1.ProcessList
	err := s.client.call(ctx, http.MethodGet, s.path("/processes"), nil, nil, &out)
	return out.Processes, err
}

// Signal sends SIGTERM or SIGKILL to a process and its group.
func (s *Sandbox) Signal(ctx context.Context, pid uint32, signal string) error {
	return s.client.call(ctx, http.MethodPost, s.path("/processes/"+strconv.FormatUint(uint64(pid), 10)+":signal"), nil,
		sandboxv1.Signal{Signal: signal}, nil)
}
