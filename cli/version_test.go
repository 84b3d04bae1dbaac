// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/version"
)

type versionedHub struct {
	sandboxv1.UnimplementedHubServer
}

func (versionedHub) GetHub(context.Context, *sandboxv1.GetHubRequest) (*sandboxv1.HubStatus, error) {
	return &sandboxv1.HubStatus{Version: "v9.8.7"}, nil
}

func TestVersion(t *testing.T) {
	hub := runner(serving(t, func(s *grpc.Server) { sandboxv1.RegisterHubServer(s, versionedHub{}) }))
	for line, c := range map[string]struct {
		on   runner
		want string
		code exitCode
	}{
		"version":          {hub, "hub       v9.8.7", 0},
		"version -o table": {serveScripted(t, &scripted{}), "is a worker's local API", 0},
		"version --client": {"127.0.0.1:1", version.String(), 0},
	} {
		stdout, stderr, code := c.on.run(t.Context(), line)
		if code != c.code || !strings.Contains(stdout, c.want) || !strings.Contains(stdout, "atollctl  "+version.String()) {
			t.Errorf("%s: exit code %d, want %q\n%s%s", line, code, c.want, stdout, stderr)
		}
	}
	// The command's own version is printed although the server is gone.
	if stdout, _, code := runner("127.0.0.1:1").run(t.Context(), "version"); code != 4 || !strings.Contains(stdout, version.String()) {
		t.Errorf("a server that is not there: exit code %d\n%s", code, stdout)
	}
}

// A command that prints tables alone refuses another output. One of the environment is for other commands.
func TestCommandsThatPrintTablesAlone(t *testing.T) {
	for _, line := range []string{"top --once -o json", "version -o json", "version --client -o json", "apply -f /none -o json"} {
		if stdout, stderr, code := runner("127.0.0.1:1").run(t.Context(), line); code != exitUsage || stdout != "" ||
			!strings.Contains(stderr, `--output: "json" is not valid, want table; `) {
			t.Errorf("%s: exit code %d, %s%s", line, code, stdout, stderr)
		}
	}
	t.Setenv("ATOLL_OUTPUT", "json")
	stdout, stderr, code := runner("127.0.0.1:1").run(t.Context(), "version --client")
	if code != 0 || !strings.Contains(stdout, version.String()) {
		t.Errorf("by the environment: exit code %d, %s%s", code, stdout, stderr)
	}
}
