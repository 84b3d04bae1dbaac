// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

// openAccess is the policy of a hub that asks for no credentials.
type openAccess struct {
	sandboxv1.UnimplementedAccessServer
}

const everybody = "this hub asks for no credentials: every caller may do everything"

func (openAccess) CheckAccess(context.Context, *sandboxv1.CheckAccessRequest) (*sandboxv1.CheckAccessResponse, error) {
	return &sandboxv1.CheckAccessResponse{Allowed: true, Reason: everybody}, nil
}

// An empty list of who may do something would mean that no caller may.
func TestWhoCanAtAnOpenHubIsEverybody(t *testing.T) {
	address := serving(t, func(s *grpc.Server) { sandboxv1.RegisterAccessServer(s, openAccess{}) })
	var out, diagnostics bytes.Buffer
	must.Succeed(t, command(t.Context(), &out, &diagnostics, "access", "who-can", "drain", "clusters", "--server", address))
	if !strings.Contains(diagnostics.String(), everybody) {
		t.Errorf("who-can tells %q and %q", &out, &diagnostics)
	}
}

// A policy file with an unknown field is told which there are; protobuf tells of a place in JSON, and the file is YAML.
func TestReadPolicyNamesFields(t *testing.T) {
	for text, want := range map[string]string{
		"bindngs: []":                `reading -: there is no field "bindngs"; did you mean "bindings"?`,
		"bindings: [{subjekts: []}]": `reading -: there is no field "subjekts"; did you mean "subjects"?`,
		"whatever: 1":                `there is no field "whatever"; there are: `,
		"roles: 7":                   `reading -: syntax error`,
		"a: [":                       "reading -: ",
		"# nothing":                  "it is empty; want roles, bindings, limits",
	} {
		_, err := readPolicy(strings.NewReader(text), "-")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "proto:") {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
