// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/validate"
)

// Tunnels opens tunnels from workers.
type Tunnels interface {
	// OpenTunnel makes a cluster open a tunnel, which counts against its holder. tell passes the token to the cluster.
	OpenTunnel(ctx context.Context, clusterID string, holder reach.Holder, tell func(ctx context.Context, token string) error) (reach.Tunnel,
		error)
}

// openingsAtOnce bounds the conversations of an account in one cluster that are being opened at a time (I14). Each costs its worker two
// calls and a stream, and a hundred at once would slow down claims.
const openingsAtOnce = 16

// Open connects to a sandbox through its cluster. A caller that may not see the sandbox gets the same error as from Get.
func (s *Service) Open(ctx context.Context, id string, what *federationv1.ReachCall) (reach.Tunnel, error) {
	account := principal.From(ctx).Account()
	at, _ := validate.ClusterOf(id)
	opened, err := s.openings.Acquire(ctx, account+" at "+at)
	if err != nil {
		return nil, err
	}
	defer opened()
	cluster, ended, err := s.find(ctx, id)
	switch {
	case err != nil:
		return nil, principal.From(ctx).Settle(true, err)
	case ended != nil:
		return nil, problem.New(problem.NotFound, "sandbox %s has ended: %s", id, outcome.Cause(ended))
	}
	holder := reach.Holder{Account: account, Sandbox: id}
	return s.tunnels.OpenTunnel(ctx, cluster, holder, func(ctx context.Context, token string) error {
		call := proto.CloneOf(what)
		call.SandboxId, call.Token, call.Caller = id, token, callerOf(principal.From(ctx))
		_, err := s.workers.Call(ctx, cluster, &federationv1.Dispatch{Call: &federationv1.Dispatch_Reach{Reach: call}})
		return err
	})
}

// callerOf returns a name of the caller for the audit of the cluster's API server.
func callerOf(p principal.Principal) string {
	if p.Identity == nil {
		return "anonymous"
	}
	return string(p.Identity.Kind) + ":" + p.Identity.Name
}
