// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
)

// largeEnvs is a hub with a full page of Envs of 30 KiB.
type largeEnvs struct {
	sandboxv1.UnimplementedEnvsServer
	sandboxv1.UnimplementedClustersServer
	sandboxv1.UnimplementedSandboxesServer
}

func (largeEnvs) ListClusters(context.Context, *sandboxv1.ListClustersRequest) (*sandboxv1.ListClustersResponse, error) {
	return &sandboxv1.ListClustersResponse{}, nil
}

func (largeEnvs) ListEnvs(_ context.Context, r *sandboxv1.ListEnvsRequest) (*sandboxv1.ListEnvsResponse, error) {
	out := &sandboxv1.ListEnvsResponse{}
	for range r.GetPageSize() {
		out.Envs = append(out.Envs, &sandboxv1.Env{Namespace: "default", Name: strings.Repeat("x", 30<<10)})
	}
	return out, nil
}

func (largeEnvs) ListSandboxes(context.Context, *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	return &sandboxv1.ListSandboxesResponse{}, nil
}

// TestAHubOfLargeEnvsIsRead: a page of them is not larger than the responses that gRPC takes by default.
func TestAHubOfLargeEnvsIsRead(t *testing.T) {
	server := grpc.NewServer()
	sandboxv1.RegisterClustersServer(server, largeEnvs{})
	sandboxv1.RegisterEnvsServer(server, largeEnvs{})
	sandboxv1.RegisterSandboxesServer(server, largeEnvs{})
	hub, err := NewHubReader(testserver.Dial(t, testserver.ServeGRPC(t, server))).look(t.Context())
	must.Succeed(t, err)
	if len(hub.Envs) != envsPage {
		t.Errorf("read %d Envs, want %d", len(hub.Envs), envsPage)
	}
}
