// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// importer is a hub that could not ask some clusters for their parts of an Env.
type importer struct {
	sandboxv1.UnimplementedEnvsServer
	away []string
}

func (i *importer) ImportEnv(context.Context, *sandboxv1.ImportEnvRequest) (*sandboxv1.ImportEnvResponse, error) {
	out := &sandboxv1.ImportEnvResponse{
		Manifest: &structpb.Struct{Fields: map[string]*structpb.Value{"kind": structpb.NewStringValue("SandboxEnv")}},
		Clusters: []*sandboxv1.CatalogCluster{{ClusterId: "east", State: sandboxv1.CatalogCluster_APPLIED}},
	}
	for _, id := range i.away {
		out.Clusters = append(out.Clusters, &sandboxv1.CatalogCluster{ClusterId: id, State: sandboxv1.CatalogCluster_PENDING,
			Message: "it is not connected"})
	}
	return out, nil
}

// An import prints what there is, and fails where it may lack the part of a cluster.
func TestAnImportWithoutAClusterFails(t *testing.T) {
	hub := &importer{}
	run := runner(serving(t, func(server *grpc.Server) { sandboxv1.RegisterEnvsServer(server, hub) })).run
	for _, away := range [][]string{nil, {"west"}, {"north", "west"}} {
		hub.away = away
		for _, output := range []string{"table", "json"} {
			stdout, stderr, code := run(t.Context(), "envs import default/py --dry-run -o "+output)
			if !strings.Contains(stdout, "SandboxEnv") || (code == 0) != (len(away) == 0) || len(away) > 0 && code != 4 {
				t.Errorf("without %v: exit code %d\n%s%s", away, code, stdout, stderr)
			}
			for _, id := range away {
				if !strings.Contains(stderr, "may lack the part of "+id+", which could not be read: it is not connected (UNAVAILABLE)\n") {
					t.Errorf("without %v: %s", away, stderr)
				}
			}
		}
	}
}
