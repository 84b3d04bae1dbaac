// SPDX-License-Identifier: Apache-2.0

package scalepolicy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
)

// Group is the state of one scaling group of an Env in one cluster, at one moment.
type Group struct {
	ClusterID string
	Policy    v1alpha1.EnvAutoscalingGroup
	Members   []Member
	// Others are the replicas of members that cannot be decided because their pool is away. They count, because the pool will have them again.
	Others int32
	// Room is the maximum number of Pods that the group may hold in this cluster; nil: only the policy limits it.
	Room *int32
	// Floor is this cluster's part of the group's minReplicas if clusters share it; nil: this cluster keeps all of it.
	Floor *int32
	Now   time.Time
}

// Member is one pool of the group.
type Member struct {
	Name string
	// Replicas are the replicas in the Env's spec.
	Replicas int32
	// MinReplicas and MaxReplicas are the member's own limits; nil: none.
	MinReplicas, MaxReplicas *int32
	// ScaleUpPriority and ScaleDownPriority are the effective priorities.
	ScaleUpPriority, ScaleDownPriority int32

	// Pods are the Pods that hold a replica: not failed, not being deleted.
	Pods Counts
	// Provisioning is the number of Pods that will become idle and ready without a decision: not created yet, not ready yet, or being reset.
	Provisioning int32
	// Stuck is how many of the Provisioning Pods are overdue and may never be ready.
	Stuck int32
	// Queue is the number of waiting claims.
	Queue int32
	// LastCreate is the last create of a sandbox of this pool; zero: never.
	LastCreate time.Time
	// IdlePods are all idle Pods, ready or not.
	IdlePods []IdlePod

	// Status is the status after the last decision; nil: none.
	Status *v1alpha1.PoolAutoScalingStatus
	// Generation is the generation of the pool.
	Generation int64
	// Refused is the latest refusal of a Pod of this pool by the API server; nil: none.
	Refused *Refusal
	// Contested means that another writer keeps setting the replicas.
	Contested bool
	// Unsettled means that the pool does not have the Env's replicas yet, so that their effect is unknown.
	Unsettled bool
}

// Counts are Pods by phase.
type Counts struct {
	Running, Starting, Stopping, Idle int32
	// ReadyIdle counts the idle Pods that can be claimed now.
	ReadyIdle int32
}

// Live returns the number of all Pods.
func (c Counts) Live() int32 { return c.Running + c.Starting + c.Stopping + c.Idle }

// busy returns the number of Pods that a scale-down never removes.
func (c Counts) busy() int32 { return c.Running + c.Starting + c.Stopping }

// IdlePod is a Pod that may be removed.
type IdlePod struct {
	Name string
	UID  types.UID
	// Ready means that the Pod can serve. Pods that are not ready are removed first.
	Ready bool
	// IdleFor is how long the Pod has been idle.
	IdleFor time.Duration
	// Marked means that the Pod is chosen for removal; MarkedFor is for how long.
	Marked    bool
	MarkedFor time.Duration
}

// Refusal is the API server's refusal to create a Pod, for example because of a quota.
type Refusal struct {
	At      time.Time
	Message string
}

// Direction is the change of a member's replicas.
type Direction string

// The directions.
const (
	None Direction = "None"
	Up   Direction = "Up"
	Down Direction = "Down"
)

// Reason is the reason why a member grows, shrinks, or does neither.
type Reason string

// Reasons for a change.
const (
	// ReasonLivePods: unmarked live Pods exceed replicas.
	ReasonLivePods Reason = "LivePods"
	// ReasonBelowFloor: replicas are below minReplicas of member or group.
	ReasonBelowFloor Reason = "BelowFloor"
	// ReasonUnmetDemand: claims wait, and no Pod is idle or starting for them.
	ReasonUnmetDemand Reason = "UnmetDemand"
	// ReasonIdleZero: no Pod has been idle for idleThresholdSeconds, and creates are recent.
	ReasonIdleZero Reason = "IdleZero"
	// ReasonIdleTimeout: Pods have been idle for idleTimeoutSeconds and are marked.
	ReasonIdleTimeout Reason = "IdleTimeout"
	// ReasonWindowOver: marked Pods are still idle after protectionWindowSeconds.
	ReasonWindowOver Reason = "ProtectionWindowOver"
)

// Reasons to leave replicas unchanged.
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

// Stop is a gate that prevented or limited a change.
type Stop struct {
	Reason Reason
	Text   string
}

// Decision is the result of Decide for a group.
type Decision struct {
	// Members are in the order of Group.Members.
	Members []MemberDecision
	// Misconfigured describes what is wrong with the policy; empty: nothing.
	Misconfigured string
	// Again is after what time to decide again if there is no event; 0: never.
	Again time.Duration
}

// MemberDecision is the decision about one member.
type MemberDecision struct {
	Name      string
	Direction Direction
	From, To  int32
	// Probe means that the group will hold more Pods, so that admission must be asked first. Floor is the number for which it need not be
	// asked.
	Probe bool
	Floor int32
	// Reason is the reason for a change of replicas, or the first gate that prevented one.
	Reason Reason
	// Text is the reason as a message.
	Text string
	// Stops are all gates that prevented or limited growth or shrinking, in order.
	Stops []Stop
	// Mark and Unmark are the idle Pods whose marks to set and to remove.
	Mark, Unmark []IdlePod
	// Status is the pool's status.autoscaling before the decision is carried out; nil if the group is not enabled.
	Status *v1alpha1.PoolAutoScalingStatus
	// SaturatedUntil is when the member may be probed again; zero: it is not saturated.
	SaturatedUntil time.Time
	// CanGrow means that an unmet claim would make the member grow, now or after a cooldown.
	CanGrow bool
}
