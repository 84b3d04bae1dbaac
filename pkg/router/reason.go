// SPDX-License-Identifier: Apache-2.0

package router

// Reason is why a candidate has its place, or why there is no candidate.
type Reason string

// Why the first candidate is the first: the policy that separated it from the next.
const (
	OnlyCandidate   Reason = "OnlyCandidate"
	FresherCluster  Reason = "FresherCluster" // the next one's cluster is the last choice
	BetterTier      Reason = "BetterTier"
	PreferredByCall Reason = "PreferredByCall"
	LowerPriority   Reason = "LowerPriority" // a lower number, which wins
	MostFree        Reason = "MostFree"      // or the shortest queue
	NearEqual       Reason = "NearEqual"     // chosen at random among near-equals
)

// Why an eligible candidate is not the first.
const (
	ClusterSuspect Reason = "ClusterSuspect"
	WorseTier      Reason = "WorseTier"
	LessPreferred  Reason = "LessPreferred"
	HigherPriority Reason = "HigherPriority"
	LessFree       Reason = "LessFree"
)

// Why a candidate is not eligible. If none is eligible, the decision has the reason that is most likely to pass.
const (
	NoMembers            Reason = "NoMembers"
	AlreadyRefused       Reason = "AlreadyRefused"
	QueueFull            Reason = "QueueFull"
	NoIdlePod            Reason = "NoIdlePod" // and the request does not queue
	ClusterUnreachable   Reason = "ClusterUnreachable"
	ClusterQuarantined   Reason = "ClusterQuarantined"
	ClusterDraining      Reason = "ClusterDraining"
	MemberInconsistent   Reason = "MemberInconsistent"
	MemberMissing        Reason = "MemberMissing"
	MemberStateUnknown   Reason = "MemberStateUnknown"
	NotServed            Reason = "NotServed" // an operator has given the cluster other namespaces, teams or Envs
	ClusterNotRequested  Reason = "ClusterNotRequested"
	InstanceTypeMismatch Reason = "InstanceTypeMismatch"
	MultiplierMismatch   Reason = "MultiplierMismatch"
	ScalingGroupMismatch Reason = "ScalingGroupMismatch"
)

// Lasting reports whether only a person can cure the reason why no candidate is eligible: the Env, its template or the request must
// change. A member that is missing or inconsistent may be so for a moment; the segment's fault tells.
func (r Reason) Lasting() bool {
	switch r {
	case NoMembers, NotServed, ClusterNotRequested, InstanceTypeMismatch, MultiplierMismatch, ScalingGroupMismatch:
		return true
	}
	return false
}

// Unserving reports whether members are there that cannot serve, for a reason that a segment's fault may tell.
func (r Reason) Unserving() bool {
	return r == NoMembers || r == MemberMissing || r == MemberInconsistent
}

// hope orders the reasons of refused candidates: the first that applies to any candidate explains an empty decision.
var hope = [...]Reason{
	QueueFull, NoIdlePod, AlreadyRefused, ClusterUnreachable, ClusterQuarantined, ClusterDraining, MemberInconsistent,
	MemberMissing, MemberStateUnknown, NotServed, ClusterNotRequested, InstanceTypeMismatch, MultiplierMismatch, ScalingGroupMismatch,
}
