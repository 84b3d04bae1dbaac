// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Changes are reported field by field. A failed part is named, and fails the command.
func TestShowRefresh(t *testing.T) {
	got := &sandboxv1.RefreshEnvResponse{
		Members: []*sandboxv1.RefreshedMember{
			{ClusterId: "east", Name: "a", Outcome: sandboxv1.RefreshedMember_REFRESHED, Changes: []string{`spec.idleImage: "x" -> "y"`}},
			{ClusterId: "east", Name: "b", Outcome: sandboxv1.RefreshedMember_UNCHANGED},
		},
	}
	var out bytes.Buffer
	if err := showRefresh(&out, "table", got); err != nil || !strings.Contains(out.String(), "\neast/a\n  spec.idleImage: \"x\" -> \"y\"\n") {
		t.Errorf("%v, printed\n%s", err, out.String())
	}
	out.Reset()
	if err := showRefresh(&out, "name", got); err != nil || out.String() != "east/a\neast/b\n" {
		t.Errorf("%v, names printed\n%s", err, out.String())
	}
	got.Members[0].Outcome, got.Members[0].Message = sandboxv1.RefreshedMember_OUTCOME_UNSPECIFIED, "not told"
	got.Members[1].Outcome, got.Members[1].Message = sandboxv1.RefreshedMember_REFUSED, "no such template"
	got.Failures = []*sandboxv1.RefreshFailure{{ClusterId: "west", Reason: "UNAVAILABLE", Message: "not connected"}}
	err := showRefresh(&out, "json", got)
	if err == nil || exitCodeOf(err) != 4 || !strings.Contains(err.Error(), "east/a was not refreshed: not told") ||
		!strings.Contains(err.Error(), "east/b was not refreshed: no such template") ||
		!strings.Contains(err.Error(), "cluster west: UNAVAILABLE: not connected") {
		t.Errorf("a refusal and a failure: %v", err)
	}
}
