// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"

	rpcstatus "google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/link"
)

// auditedJoin audits each request to join and its result. For an address that guesses invitations it writes few lines, with a count.
func auditedJoin(log *audit.Log, join link.Join) link.Join {
	if log == nil {
		return join
	}
	return func(ctx context.Context, remote string, r *federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
		began := log.Now()
		response, err := join(ctx, remote, r)
		cluster := r.GetClusterId()
		if !link.ValidClusterID(cluster) {
			cluster = "" // do not log text of an unauthenticated caller
		}
		if host, _, splitErr := net.SplitHostPort(remote); splitErr == nil {
			remote = host
		}
		e := audit.Event{
			ID: log.NewID(), Stage: audit.Done, Verb: "join", Object: audit.Object{Resource: "clusters", Name: cluster}, Cluster: cluster,
			Who: audit.Who{Name: cluster, Kind: audit.Cluster, Proof: audit.ByInvitation}, From: audit.From{Address: remote},
			Result: audit.Result{Outcome: audit.OK, Code: rpcstatus.Code(err).String(), Millis: log.Now().Sub(began).Milliseconds()},
		}
		switch {
		case err != nil:
			e.Outcome, e.Reason, e.Who.Proof = audit.Refused, e.Code, audit.ByNothing
		case response.GetCertificate() == nil:
			e.Reason = "WAITS_FOR_APPROVAL"
		}
		log.Fold(remote+"\x00join "+string(e.Outcome), e)
		return response, err
	}
}
