// SPDX-License-Identifier: Apache-2.0

package router

// Tier says how a candidate could serve a claim; lower is better.
type Tier uint8

// The tiers.
const (
	FreshIdle      Tier = iota // has an idle Pod and may grow
	SaturatedIdle              // has an idle Pod and cannot replace it
	CanGrow                    // the claim waits for a Pod that is yet to be made
	CanQueue                   // the claim waits for a release
	SaturatedQueue             // the same, where the pool cannot grow
	NoTier                     // cannot serve it at all
)

func (t Tier) String() string {
	switch t {
	case FreshIdle:
		return "FreshIdle"
	case SaturatedIdle:
		return "SaturatedIdle"
	case CanGrow:
		return "CanGrow"
	case CanQueue:
		return "CanQueue"
	case SaturatedQueue:
		return "SaturatedQueue"
	default:
		return ""
	}
}

// Idle reports whether the claim would be served without waiting for a Pod.
func (t Tier) Idle() bool { return t <= SaturatedIdle }

// Reason is why a candidate stands where it does, or why there is none.
type Reason string

// Why the first candidate is the first: the policy that set it apart from the next.
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
	ClusterLastChoice Reason = "ClusterLastChoice"
	WorseTier         Reason = "WorseTier"
	LessPreferred     Reason = "LessPreferred"
	HigherPriority    Reason = "HigherPriority"
	LessFree          Reason = "LessFree"
)

// Why a candidate is not eligible. If there is no eligible one, the decision gives the one of these that is most likely
// to pass.
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
	ClusterNotRequested  Reason = "ClusterNotRequested"
	InstanceTypeMismatch Reason = "InstanceTypeMismatch"
	MultiplierMismatch   Reason = "MultiplierMismatch"
	ScalingGroupMismatch Reason = "ScalingGroupMismatch"
)

// hope orders the reasons of refused candidates: the first that applies to any candidate explains an empty decision.
var hope = [...]Reason{
	QueueFull, NoIdlePod, AlreadyRefused, ClusterUnreachable, ClusterQuarantined, ClusterDraining, MemberInconsistent,
	MemberMissing, MemberStateUnknown, ClusterNotRequested, InstanceTypeMismatch, MultiplierMismatch, ScalingGroupMismatch,
}

func idleTier(flags uint8) Tier {
	if flags&flagSaturated != 0 {
		return SaturatedIdle
	}
	return FreshIdle
}

func waitTier(flags uint8) Tier {
	switch {
	case flags&flagSaturated != 0:
		return SaturatedQueue
	case flags&flagCanGrow != 0:
		return CanGrow
	default:
		return CanQueue
	}
}
