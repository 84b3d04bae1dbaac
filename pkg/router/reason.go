// SPDX-License-Identifier: Apache-2.0

package router

// Reason is the reason for a candidate's place, or for there being no candidate.
type Reason string

// Reasons why the first candidate is first: the policy that put it before the next one.
const (
	OnlyCandidate   Reason = "OnlyCandidate"
	FresherCluster  Reason = "FresherCluster" // the cluster of the next candidate is a last choice
	BetterTier      Reason = "BetterTier"
	PreferredByCall Reason = "PreferredByCall"
	LowerPriority   Reason = "LowerPriority" // a lower number wins
	MostFree        Reason = "MostFree"      // or the shortest queue
	NearEqual       Reason = "NearEqual"     // chosen at random among near-equal candidates
)

// Reasons why an eligible candidate is not first.
const (
	ClusterSuspect Reason = "ClusterSuspect"
	WorseTier      Reason = "WorseTier"
	LessPreferred  Reason = "LessPreferred"
	HigherPriority Reason = "HigherPriority"
	LessFree       Reason = "LessFree"
)

// Reasons why a candidate is not eligible. If none is eligible, the decision has the reason that is most likely to pass.
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
	NotServed            Reason = "NotServed" // an operator limited the cluster to other namespaces, teams or Envs
	ClusterNotRequested  Reason = "ClusterNotRequested"
	InstanceTypeMismatch Reason = "InstanceTypeMismatch"
	MultiplierMismatch   Reason = "MultiplierMismatch"
	ScalingGroupMismatch Reason = "ScalingGroupMismatch"
)

// Lasting reports whether the reason that no candidate is eligible needs a person to fix the Env, its template or the request. A member may
// be missing or inconsistent for only a moment; the segment's fault says whether it is.
func (r Reason) Lasting() bool {
	switch r {
	case NoMembers, NotServed, ClusterNotRequested, InstanceTypeMismatch, MultiplierMismatch, ScalingGroupMismatch:
		return true
	}
	return false
}

// Unserving reports whether the reason is that members cannot serve, which a segment's fault may explain.
func (r Reason) Unserving() bool {
	return r == NoMembers || r == MemberMissing || r == MemberInconsistent
}

// hope orders the reasons of ineligible candidates. An empty decision has the first reason that applies to any candidate.
var hope = [...]Reason{
	QueueFull, NoIdlePod, AlreadyRefused, ClusterUnreachable, ClusterQuarantined, ClusterDraining, MemberInconsistent,
	MemberMissing, MemberStateUnknown, NotServed, ClusterNotRequested, InstanceTypeMismatch, MultiplierMismatch, ScalingGroupMismatch,
}
