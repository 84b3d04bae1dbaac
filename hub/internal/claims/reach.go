// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
)

// Tunnels opens tunnels from workers.
type Tunnels interface {
	// Open has a cluster open a tunnel; tell passes the token on to it.
	Open(ctx context.Context, clusterID string, tell func(ctx context.Context, token string) error) (reach.Tunnel, error)
}

// Reach gets into a sandbox, where it is. Whoever may not see it hears what Get tells.
func (s *Service) Reach(ctx context.Context, tunnels Tunnels, id string, what *federationv1.ReachCall) (reach.Tunnel, error) {
	cluster, ended, err := s.find(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case ended != nil:
		return nil, problem.New(problem.NotFound, "sandbox %s has ended: %s", id, ended.GetStopReason())
	}
	return tunnels.Open(ctx, cluster, func(ctx context.Context, token string) error {
		call := proto.CloneOf(what)
		call.SandboxId, call.Token = id, token
		_, err := s.call(ctx, cluster, &federationv1.Dispatch{Call: &federationv1.Dispatch_Reach{Reach: call}})
		return err
	})
}
