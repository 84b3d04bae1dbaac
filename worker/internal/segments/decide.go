// SPDX-License-Identifier: Apache-2.0

package segments

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/worker/internal/sandbox"
)

// poolFacts are the inputs about a pool besides the Env.
type poolFacts struct {
	pool          *v1alpha1.SandboxPool // nil if it does not exist
	paused        bool                  // another controller manages it
	foreign       bool                  // it does not belong to the Env
	readyIdle     int32
	claiming      int32
	waiting       int32
	queueCapacity int32
	canGrow       bool          // an unmet claim makes it grow
	saturated     time.Duration // how long it cannot
}

func (f poolFacts) image() string {
	if f.pool == nil || len(f.pool.Spec.Template.Spec.Containers) == 0 {
		return ""
	}
	return f.pool.Spec.Template.Spec.Containers[0].Image
}

// startupTimeout returns the pool's startup timeout, or 0 if it sets none.
func (f poolFacts) startupTimeout() time.Duration {
	if f.pool == nil || f.pool.Spec.DefaultStartupTimeout == nil {
		return 0
	}
	return max(0, f.pool.Spec.DefaultStartupTimeout.Duration)
}

// segmentOf builds the local segment of an Env. An Env without members is reported as well, because the hub sends other clusters'
// segments only to clusters that have the Env.
func segmentOf(env *v1alpha1.SandboxEnv, clusterID string, pool func(name string) poolFacts) *segment.Segment {
	defaults := segment.Defaults{
		Template: fitting(env.Spec.TemplateRef.Name, segment.MaxName), Fault: faultOf(env), Named: namedBy(env, clusterID),
	}
	if d := env.Spec.Defaults; d != nil {
		defaults.InstanceType, defaults.Multiplier = fitting(d.InstanceType, segment.MaxName), d.Multiplier
	}
	out := segment.New(segment.Key{Namespace: env.Namespace, Name: env.Name}).Describe(string(env.UID), env.Generation, defaults)
	observed := map[string]v1alpha1.ObservedMemberState{}
	for _, c := range env.Status.Clusters {
		if c.ClusterID != clusterID {
			continue
		}
		for _, m := range c.ObservedMembers {
			observed[m.Name] = m.State
		}
	}
	var members []segment.Member
	for _, m := range env.MembersOf(clusterID) {
		if !segment.ValidName(m.Name) {
			continue // no pool can have the name, and the hub would refuse it
		}
		facts := pool(m.Name)
		if facts.pool != nil && sandbox.EnvOfPool(facts.pool) != env.Name {
			// Its Pods count where they belong. They serve no claim of this Env.
			facts, observed[m.Name] = poolFacts{pool: facts.pool, foreign: true}, v1alpha1.ObservedMemberStateInconsistent
		}
		members = append(members, describeMember(m, observed[m.Name], facts))
	}
	return out.With(members...)
}

// faultOf returns what a person must fix before the Env's members can serve, as in the Env's own condition.
func faultOf(env *v1alpha1.SandboxEnv) string {
	ready := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.SandboxEnvConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.ObservedGeneration != env.Generation {
		return ""
	}
	switch v1alpha1.ConditionReason(ready.Reason) {
	case v1alpha1.ReasonModeNotSupported, v1alpha1.ReasonTemplateNotFound, v1alpha1.ReasonTemplateNotVisible, v1alpha1.ReasonTemplateInvalid,
		v1alpha1.ReasonMembersInvalid, v1alpha1.ReasonMembersInconsistent, v1alpha1.ReasonNoMembers:
		return clip.Text(ready.Reason+": "+ready.Message, longestFault)
	}
	return ""
}

// namedBy lists the clusters in which the Env has members. It returns "" if there is none but the local one.
func namedBy(env *v1alpha1.SandboxEnv, clusterID string) string {
	var ids []string
	for i := range env.Spec.Clusters {
		if c := &env.Spec.Clusters[i]; len(c.Members) > 0 && segment.ValidName(c.ClusterID) {
			ids = append(ids, c.ClusterID)
		}
	}
	if !slices.ContainsFunc(ids, func(id string) bool { return id != clusterID }) {
		return ""
	}
	slices.Sort(ids)
	return fitting(strings.Join(ids, ","), segment.MaxNamed)
}

// longestFault leaves room for what clip adds.
const longestFault = segment.MaxString - 16

// fitting returns the text, or "" if it is longer than any valid name: the hub accepts no segment with such a name.
func fitting(text string, most int) string {
	if len(text) > most {
		return ""
	}
	return text
}

func describeMember(m *v1alpha1.EnvClusterMember, observed v1alpha1.ObservedMemberState, facts poolFacts) segment.Member {
	shape := segment.Shape{
		InstanceType: fitting(m.Config.InstanceType, segment.MaxName),
		Multiplier:   m.Config.Multiplier,
		ScalingGroup: fitting(m.Config.ScalingGroup, segment.MaxName),
		Priority:     m.Config.Priority,
		Image:        fitting(facts.image(), segment.MaxString),

		StartupTimeout: facts.startupTimeout(),
	}
	out := segment.Member{
		Name:    m.Name,
		Shape:   segment.Share(shape),
		Desired: m.Spec.Replicas,
		State:   memberState(observed, facts.pool),
	}
	if facts.pool == nil || facts.foreign {
		return out
	}
	if facts.paused && out.State != segment.Missing {
		out.State = segment.Inconsistent // it exists, but this worker may not hand it out
	}
	status := &facts.pool.Status
	out.Idle = status.IdleReplicas
	out.Running = status.RunningReplicas + status.StartingReplicas
	out.Current = facts.pool.Spec.Replicas
	out.ReadyIdle = facts.readyIdle
	out.SetClaiming(facts.claiming)
	out.Pending = facts.waiting
	out.QueueCapacity = facts.queueCapacity
	out.CanGrow, out.SaturatedFor = facts.canGrow, facts.saturated
	if out.SaturatedFor > 0 && out.State == segment.Active {
		out.State = segment.Saturated // before the Env's status says so
	}
	return out
}

// memberState returns the state that the Env reconciler found. The reconciler has not processed a new Env yet, and may not have seen that a
// pool was created or deleted since.
func memberState(observed v1alpha1.ObservedMemberState, pool *v1alpha1.SandboxPool) segment.State {
	if pool == nil || pool.DeletionTimestamp != nil {
		return segment.Missing
	}
	switch observed {
	case v1alpha1.ObservedMemberStateSaturated:
		return segment.Saturated
	case v1alpha1.ObservedMemberStateInconsistent:
		return segment.Inconsistent
	default:
		return segment.Active
	}
}
