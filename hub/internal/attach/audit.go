// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/audit"
)

// record audits whether a cluster was admitted. For a cluster that connects again and again it writes a few lines a minute, with a count.
func (s *Server) record(ctx context.Context, clusterID string, refused *federationv1.Refused, err error) {
	if s.opts.Audit == nil {
		return
	}
	e := s.event(ctx, "attach", clusterID)
	e.Code = status.Code(err).String()
	switch {
	case refused != nil:
		e.Outcome, e.Reason = audit.Refused, refused.GetReason()
	case status.Code(err) == codes.Canceled || status.Code(err) == codes.Unknown && err != nil:
		e.Outcome = audit.Failed // the stream broke before it had begun
	case err != nil:
		e.Outcome = audit.Refused
	}
	s.opts.Audit.Fold(clusterID+"\x00"+string(e.Outcome), e)
}

// recordRenewal audits that a cluster requested another certificate. For repeated refusals it writes a few lines a minute, with a count.
func (c *conn) recordRenewal(ctx context.Context, issued bool) {
	log := c.server.opts.Audit
	if log == nil {
		return
	}
	e := c.server.event(ctx, "renew", c.clusterID)
	if issued {
		log.Record(e)
		return
	}
	e.Outcome, e.Code = audit.Refused, codes.FailedPrecondition.String()
	log.Fold(c.clusterID+"\x00renew", e)
}

// event returns the line of a cluster's success.
func (s *Server) event(ctx context.Context, verb, clusterID string) audit.Event {
	return audit.Event{
		ID: s.opts.Audit.NewID(), Stage: audit.Done, Verb: verb, Object: audit.Object{Resource: "clusters", Name: clusterID}, Cluster: clusterID,
		Who: audit.Who{Name: clusterID, Kind: audit.Cluster, Proof: audit.ByCertificate}, From: audit.From{Address: remote(ctx)},
		Result: audit.Result{Outcome: audit.OK, Code: codes.OK.String()},
	}
}

func remote(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if host, _, err := net.SplitHostPort(p.Addr.String()); err == nil {
		return host
	}
	return p.Addr.String()
}
