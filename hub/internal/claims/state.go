// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
)

// claimFacts holds the facts from which the state of a claim key follows.
type claimFacts struct {
	record  *ledger.Record
	sandbox *sandboxv1.Sandbox // as its cluster shows it, or its terminal record
	err     error              // the error of the lookup at the cluster
	flying  bool               // this hub process pursues the claim
	// forgotten: an operator removed the cluster, so the claim may go elsewhere and a sandbox counts as ended.
	forgotten bool
	now       time.Time
}

// stateOf decides the state of a claim key. If the cluster does not know the claim, the claim is between two clusters while this process
// pursues it, and otherwise waits for its caller's next attempt until its deadline.
func stateOf(s claimFacts) sandboxv1.Claim_State {
	switch {
	case s.record.State == ledger.Ended:
		return sandboxv1.Claim_ENDED
	case s.record.State == ledger.Refused && !s.flying:
		return sandboxv1.Claim_EXPIRED
	case s.err != nil && reasonOf(s.err) != problem.NotFound && !s.forgotten:
		return sandboxv1.Claim_UNKNOWN
	case s.err != nil && s.record.State == ledger.Returned:
		return sandboxv1.Claim_ENDED // its terminal record has not arrived
	case s.err != nil && !s.flying && s.now.After(s.record.Deadline):
		return sandboxv1.Claim_EXPIRED
	case s.err != nil || s.sandbox.GetPhase() == sandboxv1.Phase_PENDING:
		return sandboxv1.Claim_WAITING
	case outcome.Over(s.sandbox):
		return sandboxv1.Claim_ENDED
	case s.sandbox.GetPhase() == sandboxv1.Phase_STARTING:
		return sandboxv1.Claim_STARTING
	default:
		return sandboxv1.Claim_RUNNING
	}
}

// fillState sets a claim's state and the fields that depend on it.
func fillState(c *sandboxv1.Claim, s claimFacts) {
	c.State = stateOf(s)
	c.Pool = cmp.Or(s.sandbox.GetPool(), s.record.Pool)
	switch c.GetState() {
	case sandboxv1.Claim_WAITING:
		c.Since, c.Waiting = c.GetCreatedAt(), s.sandbox.GetWaiting()
		c.Message = cmp.Or(c.GetWaiting().GetReason(), "no cluster has taken it yet")
	case sandboxv1.Claim_STARTING:
		c.Since, c.Message = s.sandbox.GetClaimedAt(), s.sandbox.GetStatusDetail().GetReason()
	case sandboxv1.Claim_RUNNING:
		c.Since = s.sandbox.GetStartedAt()
	case sandboxv1.Claim_ENDED:
		c.Since, c.Message = s.sandbox.GetTerminatedAt(), outcome.Cause(s.sandbox)
	case sandboxv1.Claim_EXPIRED:
		c.Since = timestamppb.New(s.record.Deadline)
		c.Message = "no cluster gave it a sandbox in time; the same create begins anew"
	case sandboxv1.Claim_UNKNOWN:
		c.Message = "cluster " + s.record.Cluster + " does not respond: " + problem.FromError(s.err).Message
	}
}
