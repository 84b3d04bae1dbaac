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

func TestTopShowsReplicasWhereThereAreSeveral(t *testing.T) {
	l := &look{
		clusters: &sandboxv1.ListClustersResponse{Clusters: []*sandboxv1.Cluster{{Id: "east", Running: 3}}},
		replicas: []*sandboxv1.Replica{{Name: "hub-0", Reachable: true, Clusters: 1, Self: true}, {Name: "hub-1"}},
	}
	for _, n := range []int{2, 1} {
		l.replicas = l.replicas[:n]
		var out bytes.Buffer
		must.Succeed(t, l.print(&out, nil))
		for _, name := range []string{"hub-0", "hub-1"} {
			if shown := strings.Contains(out.String(), name); shown != (n == 2) {
				t.Errorf("of %d replicas %s is shown: %t\n%s", n, name, shown, out.String())
			}
		}
		if !strings.Contains(out.String(), "east") || !strings.Contains(out.String(), " 1 cluster, 0 envs, 3 running\n") {
			t.Errorf("printed\n%s", out.String())
		}
	}
}

// pagedEnvs has two Envs, a page each, the first of which is larger than the responses that gRPC takes by default.
type pagedEnvs struct {
	sandboxv1.UnimplementedEnvsServer
}

func (pagedEnvs) ListEnvs(_ context.Context, r *sandboxv1.ListEnvsRequest) (*sandboxv1.ListEnvsResponse, error) {
	if r.GetPageToken() != "" {
		return &sandboxv1.ListEnvsResponse{Envs: []*sandboxv1.Env{{Namespace: "default", Name: "small"}}}, nil
	}
	large := &sandboxv1.Env{Namespace: "default", Name: "large", Clusters: []*sandboxv1.EnvCluster{{ClusterId: "east",
		Members: []*sandboxv1.EnvMember{{Name: "pool", Image: strings.Repeat("x", 5<<20)}}}}}
	return &sandboxv1.ListEnvsResponse{Envs: []*sandboxv1.Env{large}, NextPageToken: "default/large"}, nil
}

func TestTopShowsAllEnvs(t *testing.T) {
	server := runner(serving(t, func(server *grpc.Server) {
		sandboxv1.RegisterEnvsServer(server, pagedEnvs{})
		sandboxv1.RegisterClustersServer(server, &scripted{})
	}))
	stdout, stderr, code := server.run(t.Context(), "top --once")
	if code != 0 || !strings.Contains(stdout, " 2 envs,") || !strings.Contains(stdout, "default/large ") ||
		!strings.Contains(stdout, "default/small ") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}
