// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
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

func (*keyHub) CreateKey(_ context.Context, r *sandboxv1.CreateKeyRequest) (*sandboxv1.ApiKey, error) {
	return &sandboxv1.ApiKey{Name: r.GetName(), Token: "atoll_new"}, nil
}

func (*keyHub) RotateKey(_ context.Context, r *sandboxv1.RotateKeyRequest) (*sandboxv1.ApiKey, error) {
	return &sandboxv1.ApiKey{Name: r.GetName(), Token: "atoll_next"}, nil
}

// A command that fails before its call leaves no file, so that the same command succeeds once it can call.
func TestATokensFileIsGoneWhereNoCallIsMade(t *testing.T) {
	server := runner(serving(t, func(s *grpc.Server) { sandboxv1.RegisterKeysServer(s, &keyHub{}) }))
	for line, token := range map[string]string{"keys create ci --all": "atoll_new\n", "keys rotate ci": "atoll_next\n"} {
		file := filepath.Join(t.TempDir(), "token")
		line += " --out " + file
		for _, wrong := range []string{" --token-file /none", " --ca-file /none"} {
			if _, stderr, code := server.run(t.Context(), line+wrong); code != exitUsage || !strings.Contains(stderr, "open /none: no such file") {
				t.Errorf("%s: exit code %d, %s", line+wrong, code, stderr)
			}
		}
		_, stderr, code := server.run(t.Context(), line)
		if got, err := os.ReadFile(file); code != 0 || err != nil || string(got) != token {
			t.Errorf("%s: exit code %d, the file has %q, %v\n%s", line, code, got, err, stderr)
		}
	}
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
