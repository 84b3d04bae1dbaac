// SPDX-License-Identifier: Apache-2.0

package scalepolicy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
)

// Group is one scaling group of an Env in one cluster, at one moment.
type Group struct {
	ClusterID string
	Policy    v1alpha1.EnvAutoscalingGroup
	Members   []Member
	// Others are the replicas of members about which nothing can be decided, since their pool is away: they hold what it will
	// have again.
	Others int32
	// Room is the most Pods that the group may hold in this cluster; nil: nobody limits it but the policy.
	Room *int32
	Now  time.Time
}

// Member is one pool of the group.
type Member struct {
	Name string
	// Replicas are those that the Env asks for.
	Replicas int32
	// MinReplicas and MaxReplicas are the member's own limits; nil: none.
	MinReplicas, MaxReplicas *int32
	// ScaleUpPriority and ScaleDownPriority are the effective ones.
	ScaleUpPriority, ScaleDownPriority int32

	// Pods that hold a replica: not those that failed or are being deleted.
	Pods Counts
	// Provisioning are the Pods that will be idle and ready without anything being decided: not made yet, not ready yet,
	// being reset.
	Provisioning int32
	// Stuck are those of Provisioning that should have been ready long ago, and may never be.
	Stuck int32
	// Queue is the number of claims that wait.
	Queue int32
	// LastCreate is when a sandbox of this pool was last asked for; zero: never.
	LastCreate time.Time
	// IdlePods are all idle Pods, ready or not.
	IdlePods []IdlePod

	// Status is what the last decision left; nil: nothing.
	Status *v1alpha1.PoolAutoScalingStatus
	// Generation is the pool's.
	Generation int64
	// Refused is the latest refusal of a Pod of this pool, if there is one.
	Refused *Refusal
	// Contested: another writer keeps setting the replicas.
	Contested bool
	// Unsettled: the pool does not have the Env's replicas yet, so that nothing is known of what they bring.
	Unsettled bool
}

// Counts are Pods by phase.
type Counts struct {
	Running, Starting, Stopping, Idle int32
	// ReadyIdle are those of Idle that can be claimed now.
	ReadyIdle int32
}

// Live are all of them.
func (c Counts) Live() int32 { return c.Running + c.Starting + c.Stopping + c.Idle }

// busy are those that a scale-down never touches.
func (c Counts) busy() int32 { return c.Running + c.Starting + c.Stopping }

// IdlePod is a Pod that may be removed.
type IdlePod struct {
	Name string
	UID  types.UID
	// Ready: it can serve. One that cannot goes first.
	Ready bool
	// IdleFor is how long it has been idle.
	IdleFor time.Duration
	// Marked: it is chosen for removal, and for how long.
	Marked    bool
	MarkedFor time.Duration
}

// Refusal is a Pod that the API server did not let in, for a quota say.
type Refusal struct {
	At      time.Time
	Message string
}

// Direction is what becomes of a member's replicas.
type Direction string

// The directions.
const (
	None Direction = "None"
	Up   Direction = "Up"
	Down Direction = "Down"
)

// Reason is why a member grows, shrinks, or does neither.
type Reason string

// Reasons to change something.
const (
	// ReasonLivePods: more Pods that are not marked are there than replicas.
	ReasonLivePods Reason = "LivePods"
	// ReasonBelowFloor: replicas are below minReplicas of member or group.
	ReasonBelowFloor Reason = "BelowFloor"
	// ReasonUnmetDemand: claims wait, and no Pod for them is idle or on its way.
	ReasonUnmetDemand Reason = "UnmetDemand"
	// ReasonIdleZero: no Pod has been idle for idleThresholdSeconds, and creates are recent.
	ReasonIdleZero Reason = "IdleZero"
	// ReasonIdleTimeout: Pods have been idle for idleTimeoutSeconds and are marked.
	ReasonIdleTimeout Reason = "IdleTimeout"
	// ReasonWindowOver: marked Pods are still idle after protectionWindowSeconds.
	ReasonWindowOver Reason = "ProtectionWindowOver"
)

// Reasons to leave replicas as they are.
const (
	ReasonDisabled      Reason = "Disabled"
	ReasonMisconfigured Reason = "Misconfigured"
	ReasonContested     Reason = "ReplicasContested"
	ReasonUnsettled     Reason = "Unsettled"

	ReasonNoTrigger       Reason = "NoTrigger"
	ReasonProactiveOff    Reason = "ProactiveOff"
	ReasonIdleThreshold   Reason = "IdleThreshold"
	ReasonQuietWindow     Reason = "QuietWindow"
	ReasonSuccessCooldown Reason = "SuccessCooldown"
	ReasonSaturated       Reason = "SaturationCooldown"
	ReasonYields          Reason = "YieldsToSibling"
	ReasonMemberCeiling   Reason = "MemberCeiling"
	ReasonGroupCeiling    Reason = "GroupCeiling"
	ReasonNoRoom          Reason = "NoRoom"

	ReasonNotIdleEnough    Reason = "NotIdleLongEnough"
	ReasonStabilizing      Reason = "Stabilization"
	ReasonProtectionWindow Reason = "ProtectionWindow"
	ReasonMemberFloor      Reason = "MemberFloor"
	ReasonGroupFloor       Reason = "GroupFloor"
	ReasonBufferKept       Reason = "BufferKept"
	ReasonLaterBatch       Reason = "LaterBatch"
	ReasonDemand           Reason = "Demand"
)

// Stop is a gate that stopped a change, or cut it short.
type Stop struct {
	Reason Reason
	Text   string
}

// Decision is what to do about a group.
type Decision struct {
	// Members are in the order of the group's.
	Members []MemberDecision
	// Misconfigured says what is wrong with the policy; empty: nothing.
	Misconfigured string
	// Again is when to decide again although nothing has happened; 0: never.
	Again time.Duration
}

// MemberDecision is what to do about one member.
type MemberDecision struct {
	Name      string
	Direction Direction
	From, To  int32
	// Probe: the group holds more Pods afterwards, so admission is asked first. Floor is how many need no question.
	Probe bool
	Floor int32
	// Reason is why something changes, or the first gate that stopped it.
	Reason Reason
	// Text says so to people.
	Text string
	// Stops are all gates that stopped growth or shrinking, or cut it short, in their order.
	Stops []Stop
	// Mark and Unmark are idle Pods that become, or are no longer, chosen for removal.
	Mark, Unmark []IdlePod
	// Status is the pool's status.autoscaling before any of this is carried out; nil when the group is not enabled.
	Status *v1alpha1.PoolAutoScalingStatus
	// SaturatedUntil is when the member may be probed again; zero: it is not saturated by a refusal.
	SaturatedUntil time.Time
	// CanGrow: an unmet claim would make it grow, now or when a cooldown is over.
	CanGrow bool
}
