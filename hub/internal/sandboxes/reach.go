// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// Tunnels opens tunnels from workers.
type Tunnels interface {
	// OpenTunnel has a cluster open a tunnel; tell passes the token to the cluster.
	OpenTunnel(ctx context.Context, clusterID string, tell func(ctx context.Context, token string) error) (reach.Tunnel, error)
}

// Open connects to a sandbox through its cluster. A caller that may not see it gets the error of Get.
func (s *Service) Open(ctx context.Context, id string, what *federationv1.ReachCall) (reach.Tunnel, error) {
	cluster, ended, err := s.find(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case ended != nil:
		return nil, problem.New(problem.NotFound, "sandbox %s has ended: %s", id, ended.GetStopReason())
	}
	return s.tunnels.OpenTunnel(ctx, cluster, func(ctx context.Context, token string) error {
		call := proto.CloneOf(what)
		call.SandboxId, call.Token = id, token
		_, err := s.workers.Call(ctx, cluster, &federationv1.Dispatch{Call: &federationv1.Dispatch_Reach{Reach: call}})
		return err
	})
}
