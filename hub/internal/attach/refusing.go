// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/link"
)

// peerOf returns the peer of a stream from its certificate.
func peerOf(ctx context.Context, clusterID string) fleet.Peer {
	return fleet.Peer{
		ClusterID: clusterID, Key: link.PeerKey(ctx), Issuer: link.PeerIssuer(ctx), Issued: link.PeerIssued(ctx), Expires: link.PeerExpiry(ctx),
	}
}

// accountOf returns the account under which a peer's streams are counted and paced. Peers with a revoked certificate have a separate
// account; because otherwise they would use up the account of the cluster that has the name now.
func accountOf(clusterID string, why fleet.Refusal) string {
	if why != fleet.None {
		return clusterID + "/revoked" // no cluster has such a name
	}
	return clusterID
}

// refusedError is the error of a refused stream.
type refusedError struct {
	error
	frame *federationv1.Refused
}

// refuse sends a refusal to the worker, and returns it as the error of its stream.
func refuse(stream stream, refused *federationv1.Refused) error {
	err := stream.Send(&federationv1.HubFrame{Body: &federationv1.HubFrame_Refused{Refused: refused}})
	err = errors.Join(status.Errorf(codes.FailedPrecondition, "refused: %s: %s", refused.GetReason(), refused.GetMessage()), err)
	return &refusedError{err, refused}
}
