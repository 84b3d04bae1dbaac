// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/pkg/problem"
)

// A hub that takes keys and has none makes one, with which others are made; their tokens are in no file of the hub, they outlive a
// restart, and a watch ends within two seconds of a revocation.
func TestKeysOfTheStoreOpenTheHub(t *testing.T) {
	o := testOptions(t)
	o.ways, o.ttl = []string{authKeys}, time.Minute
	must.Succeed(t, o.authOptions.validate())
	var bootstrap, token string
	t.Run("first", func(t *testing.T) {
		h := start(t, o)
		path := filepath.Join(o.dataDir, bootstrapFile)
		raw, err := os.ReadFile(path)
		must.Succeed(t, err)
		info, err := os.Stat(path)
		if must.Succeed(t, err); info.Mode().Perm() != 0o600 {
			t.Errorf("the first token's file has the mode %s", info.Mode())
		}
		bootstrap = strings.TrimSpace(string(raw))
		conn, as := dial(t, h)
		keys := sandboxv1.NewKeysClient(conn)
		if _, err := keys.ListKeys(t.Context(), &sandboxv1.ListKeysRequest{}); problem.FromError(err).Reason != problem.Unauthenticated {
			t.Errorf("without a token: %v", err)
		}
		key, err := keys.CreateKey(as(bootstrap), &sandboxv1.CreateKeyRequest{
			Name: "ci", Team: "red", Namespaces: []string{"n"}, Scopes: []string{"read"},
		})
		must.Succeed(t, err)
		token = key.GetToken()
		if _, err := keys.ListKeys(as(token), &sandboxv1.ListKeysRequest{}); problem.FromError(err).Reason != problem.Forbidden {
			t.Errorf("a key that may read lists keys: %v", err)
		}
	})
	must.Succeed(t, filepath.WalkDir(o.dataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(token)) {
			t.Errorf("%s has the token of a key", path)
		}
		return err
	}))
	h := start(t, o)
	conn, as := dial(t, h)
	keys := sandboxv1.NewKeysClient(conn)
	list, err := keys.ListKeys(as(bootstrap), &sandboxv1.ListKeysRequest{})
	if must.Succeed(t, err); len(list.GetKeys()) != 2 || list.GetKeys()[1].GetCreatedBy() != "bootstrap" ||
		list.GetKeys()[1].GetLastUsed() == nil {
		t.Errorf("after a restart the keys are %v", list)
	}
	stream, err := sandboxv1.NewSandboxesClient(conn).WatchSandboxes(as(token), &sandboxv1.WatchSandboxesRequest{})
	must.Succeed(t, err)
	_, err = stream.Recv()
	must.Succeed(t, err)
	over := make(chan error, 1)
	go func() { _, err := stream.Recv(); over <- err }()
	_, err = keys.DeleteKey(as(bootstrap), &sandboxv1.DeleteKeyRequest{Name: "ci"})
	must.Succeed(t, err)
	began := time.Now() // the revocation has been written, which takes as long as the disk does
	if err := <-over; problem.FromError(err).Reason != problem.Unauthenticated || time.Since(began) > 2*time.Second {
		t.Errorf("the watch of a revoked key ended after %s with %v", time.Since(began), err)
	}
	if _, err := keys.ListKeys(as(token), &sandboxv1.ListKeysRequest{}); problem.FromError(err).Reason != problem.Unauthenticated {
		t.Errorf("a revoked key: %v", err)
	}
}

// dial connects to a hub's API; as returns the context of a call with a token.
func dial(t *testing.T, h running) (conn *grpc.ClientConn, as func(token string) context.Context) {
	t.Helper()
	return testserver.Dial(t, h.api), func(token string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	}
}
