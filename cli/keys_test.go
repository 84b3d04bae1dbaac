// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// keyHub is a hub with API keys.
type keyHub struct {
	sandboxv1.UnimplementedKeysServer
	keys map[string]bool
}

func (h *keyHub) DeleteKey(_ context.Context, r *sandboxv1.DeleteKeyRequest) (*emptypb.Empty, error) {
	if !h.keys[r.GetName()] {
		return nil, problem.New(problem.NotFound, "no API key %q", r.GetName())
	}
	delete(h.keys, r.GetName())
	return &emptypb.Empty{}, nil
}

// A key that cannot be revoked keeps none of the others valid.
func TestRevokingSeveralKeysRevokesAllThatThereAre(t *testing.T) {
	h := &keyHub{keys: map[string]bool{"a": true, "b": true, "c": true}}
	server := runner(serving(t, func(s *grpc.Server) { sandboxv1.RegisterKeysServer(s, h) }))
	_, stderr, code := server.run(t.Context(), "keys revoke a mistyped b")
	if code != 3 || len(h.keys) != 1 || !h.keys["c"] {
		t.Errorf("the exit code is %d, and left are %v", code, h.keys)
	}
	for _, line := range []string{"revoked a\n", "revoked b\n", `atollctl: revoking mistyped: no API key "mistyped" (NOT_FOUND)` + "\n"} {
		if !strings.Contains(stderr, line) {
			t.Errorf("it does not say %q but\n%s", line, stderr)
		}
	}
}
