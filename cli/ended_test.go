// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// lister returns two pages; a cluster is missing from the first.
type lister struct {
	sandboxv1.UnimplementedSandboxesServer
	asked []*sandboxv1.ListSandboxesRequest
}

func (l *lister) ListSandboxes(_ context.Context, r *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	l.asked = append(l.asked, proto.CloneOf(r))
	if r.GetPageToken() == "" {
		return &sandboxv1.ListSandboxesResponse{NextPageToken: "a", UnreachableClusters: []string{"west"}}, nil
	}
	return &sandboxv1.ListSandboxesResponse{Sandboxes: []*sandboxv1.Sandbox{
		{Id: "b", Phase: sandboxv1.Phase_ENDED, StopReason: "Failed", FailureReason: "OOMKilled"},
	}}, nil
}

func TestEndedSandboxesOnTheCommandLine(t *testing.T) {
	l := &lister{}
	address := serving(t, func(s *grpc.Server) { sandboxv1.RegisterSandboxesServer(s, l) })
	run := func(args ...string) (string, error) {
		var out strings.Builder
		err := command(t.Context(), &out, &out, append([]string{"--server", address, "sandboxes"}, args...)...)
		return out.String(), err
	}
	out, err := run("--ended", "--ended-after", "2h", "--ended-before", "2026-03-01T12:00:00Z", "--stop-reason", "Failed", "--pool", "p",
		"--team", "red", "-l", "app=web", "--metadata", "title=a, b", "--metadata", "!old", "--sort-by", "id")
	if err != nil || !strings.Contains(out, "Failed (OOMKilled)") || !strings.Contains(out, "unreachable: west") {
		t.Errorf("%s\n%v", out, err)
	}
	if len(l.asked) != 2 {
		t.Fatalf("asked %v", l.asked)
	}
	r := l.asked[1]
	if r.GetPhase() != sandboxv1.Phase_ENDED || r.GetStopReason() != "Failed" || r.GetPool() != "p" || r.GetTeam() != "red" ||
		r.GetPageToken() != "a" || r.GetLabelSelector() != "app=web" || r.GetOrderBy() != "id" ||
		!slices.Equal(r.GetMetadataSelector(), []string{"title=a, b", "!old"}) ||
		r.GetEndedBefore().AsTime().Year() != 2026 || time.Since(r.GetEndedAfter().AsTime()).Round(time.Minute) != 2*time.Hour {
		t.Errorf("asked %v", r)
	}
	for args, want := range map[string]string{
		"--ended --phase running":  "exclude each other",
		"--ended-after yesterday":  `--ended-after: "yesterday" is not valid`,
		"--ended-before -2h":       `--ended-before: "-2h" is not valid`,
		"--phase asleep":           "one of: starting, running, stopping, ended",
		"--ended-after 2026-03-01": "is not valid",
	} {
		if out, err := run(strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}
