// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
)

// Of --token and --token-file the one counts that is nearer to the command line.
func TestTheNearerTokenCounts(t *testing.T) {
	atHome(t)
	hub, address := startTokenHub(t)
	dir := t.TempDir()
	key, file := filepath.Join(dir, "key"), filepath.Join(dir, "flags.yaml")
	must.Succeed(t, os.WriteFile(key, []byte("of-a-file\n"), 0o600))
	must.Succeed(t, os.WriteFile(file, []byte("token-file: "+key+"\n"), 0o600))
	for name, tc := range map[string]struct {
		token, tokenFile string // in the environment
		args             []string
		want             string
	}{
		"--token before the environment's file":       {"", key, []string{"--token", "given"}, "given"},
		"--token-file before the environment's token": {"of-the-environment", "", []string{"--token-file", key}, "of-a-file"},
		"the environment's token before --config's":   {"of-the-environment", "", []string{"--config", file}, "of-the-environment"},
		"of two in the environment, the token's file": {"of-the-environment", key, nil, "of-a-file"},
		"an empty one is none":                        {"of-the-environment", "", []string{"--token-file", ""}, "of-the-environment"},
		"of all, what is given on the command line":   {"of-the-environment", key, []string{"--token", "given", "--config", file}, "given"},
		"one of --config where there is no other one": {"", "", []string{"--config", file}, "of-a-file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("ATOLL_TOKEN", tc.token)
			t.Setenv("ATOLL_TOKEN_FILE", tc.tokenFile)
			for variable, value := range map[string]string{"ATOLL_TOKEN": tc.token, "ATOLL_TOKEN_FILE": tc.tokenFile} {
				if value == "" {
					must.Succeed(t, os.Unsetenv(variable))
				}
			}
			succeed(t, append([]string{"clusters", "--server", address}, tc.args...)...)
			if got := hub.last(t); got != "Bearer "+tc.want {
				t.Errorf("the hub saw %q, want %s", got, tc.want)
			}
		})
	}
	err := command(t.Context(), io.Discard, io.Discard, "clusters", "--server", address, "--token", "given", "--token-file", key)
	if err == nil || exitCodeOf(err) != exitUsage {
		t.Errorf("both on the command line: %v", err)
	}
}

// The arguments of a context's command can be changed by themselves. Without a command there is nothing that takes them.
func TestArgumentsAreThoseOfACommand(t *testing.T) {
	atHome(t)
	hub, address := startTokenHub(t)
	err := command(t.Context(), io.Discard, io.Discard, "config", "set-context", "a", "--server", address, "--exec-arg", "first")
	if err == nil || exitCodeOf(err) != exitUsage || !strings.Contains(err.Error(),
		`--exec-arg: context "a" has no command, want --exec-command as well`) {
		t.Errorf("arguments of no command: %v", err)
	}
	succeed(t, "config", "set-context", "a", "--server", address, "--exec-command", "echo", "--exec-arg", "first")
	succeed(t, "config", "set-context", "a", "--exec-arg", "second")
	succeed(t, "clusters")
	if got := hub.last(t); got != "Bearer second" {
		t.Errorf("the hub saw %q", got)
	}
}

// The command of a context ends with the call that its token is for.
func TestATokenTakesNoLongerThanItsCall(t *testing.T) {
	atHome(t)
	_, address := startTokenHub(t)
	succeed(t, "config", "set-context", "a", "--server", address, "--exec-command", "sleep", "--exec-arg", "300")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := command(ctx, io.Discard, io.Discard, "clusters", "--timeout", "50ms")
	if err == nil || !strings.Contains(err.Error(), "getting a token from sleep") || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("a call of 50ms: %v", err)
	}
}
