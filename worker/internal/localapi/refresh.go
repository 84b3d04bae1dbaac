// SPDX-License-Identifier: Apache-2.0

package localapi

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// RefreshEnv renders the Env's members in this cluster again.
func (a *API) RefreshEnv(ctx context.Context, in *sandboxv1.RefreshEnvRequest) (*sandboxv1.RefreshEnvResponse, error) {
	if a.opts.Envs == nil {
		return nil, problem.New(problem.Unimplemented, "this worker refreshes no Envs")
	}
	if clusters := in.GetClusters(); len(clusters) > 0 && !slices.Equal(clusters, []string{a.opts.ClusterID}) {
		return nil, problem.InvalidField("clusters", strings.Join(clusters, ","),
			a.opts.ClusterID+", this worker's own; ask the hub about others")
	}
	r := proto.CloneOf(in)
	r.Namespace = namespaceOf(in)
	return a.opts.Envs.Refresh(ctx, r)
}
