// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	rpcstatus "google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/pkg/audit"
)

// Each request to join has a line with its outcome and without its invitation; guesses are counted.
func TestJoinsAreAudited(t *testing.T) {
	var out bytes.Buffer
	log := audit.New(audit.Options{Sinks: []audit.Sink{audit.Stdout(&out)}, Clock: clock.RealClock{}, Log: testlog.New(t)})
	var response *federationv1.JoinResponse
	var err error
	join := auditedJoin(log, func(context.Context, string, *federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
		return response, err
	})
	ask := func(cluster, from string) {
		_, _ = join(t.Context(), from, &federationv1.JoinRequest{ClusterId: cluster, Token: "canary"})
	}
	response = &federationv1.JoinResponse{Certificate: &federationv1.Certificate{}}
	ask("east", "192.0.2.1:1")
	response = &federationv1.JoinResponse{}
	ask("west", "192.0.2.2:1")
	response, err = nil, rpcstatus.Error(codes.PermissionDenied, "no")
	for range 50 {
		ask("no\nname", "192.0.2.3:1")
	}
	must.Succeed(t, log.Close())
	text := out.String()
	var got []string
	_, readErr := audit.Read(&out, func(e audit.Event) error {
		got = append(got, strings.TrimSpace(fmt.Sprintln(e.Stage, e.Who.Proof, e.Cluster, e.From.Address, e.Outcome, e.Reason, e.Code, e.Count)))
		return nil
	})
	must.Succeed(t, readErr)
	want := []string{
		"done invitation east 192.0.2.1 ok  OK 0", "done invitation west 192.0.2.2 ok WAITS_FOR_APPROVAL OK 0",
		"done none  192.0.2.3 refused PermissionDenied PermissionDenied 0", "done none  192.0.2.3 refused PermissionDenied PermissionDenied 0",
		"done none  192.0.2.3 refused PermissionDenied PermissionDenied 0",
		"summary none  192.0.2.3 refused PermissionDenied PermissionDenied 47",
	}
	if !slices.Equal(got, want) || strings.Contains(text, "canary") {
		t.Errorf("the audit is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
