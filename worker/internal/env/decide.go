// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/replicas"
	"navix.sh/atoll/worker/internal/snapshot"
)

// verb is the action on one member or pool.
type verb string

const (
	verbKeep            verb = "Keep"            // nothing
	verbRefuse          verb = "Refuse"          // nothing, until the member or its template changes, or a plugin is asked again
	verbWait            verb = "Wait"            // nothing, until a pool is gone
	verbAdmit           verb = "Admit"           // render, and freeze the result in the Env's status
	verbTakeBack        verb = "TakeBack"        // freeze the live pool
	verbRestoreReplicas verb = "RestoreReplicas" // put the live pool's replicas back into the Env
	verbAddPullSecret   verb = "AddPullSecret"   // add the Env's pull secret to the snapshot
	verbCreate          verb = "Create"          // create the pool from the snapshot
	verbRepair          verb = "Repair"          // make the pool what the snapshot says
	verbFreeze          verb = "Freeze"          // copy the snapshots that members state into the Env's status
	verbDelete          verb = "Delete"          // delete the pool
)

// Reasons of decisions. Those of conditions are in api/v1alpha1.
const (
	reasonAdmitted        v1alpha1.ConditionReason = "Admitted"
	reasonSnapshotLost    v1alpha1.ConditionReason = "SnapshotLost"
	reasonReplicasOfOther v1alpha1.ConditionReason = "ReplicasSetByOther"
	reasonPoolNotOwned    v1alpha1.ConditionReason = "PoolNotOwned"
	reasonPoolAdopting    v1alpha1.ConditionReason = "PoolAdopting"
	reasonPoolTerminating v1alpha1.ConditionReason = "PoolTerminating"
	reasonMemberInvalid   v1alpha1.ConditionReason = "MemberInvalid"
	reasonMemberChanged   v1alpha1.ConditionReason = "MemberChanged"
	reasonPullSecretFound v1alpha1.ConditionReason = "PullSecretFound"
	reasonRepairRefused   v1alpha1.ConditionReason = "RepairRefused"
)

// plan is the decision about one Env.
type plan struct {
	members []memberPlan // in the order of the local segment
	orphans []string     // pools of the Env that no member names, sorted
}

// memberPlan is the decision about one member.
type memberPlan struct {
	name   string
	verb   verb
	reason v1alpha1.ConditionReason
	// state is the member's state in the observation; the action may improve it.
	state v1alpha1.ObservedMemberState
	// message tells users why, and what helps.
	message string
	// drift is what a repair changes.
	drift []snapshot.Drift
	// matches is set if the live pool matches its snapshot, or was repaired to match it.
	matches bool
	// unrepaired is set if the API server refuses the repair. The pool's replicas are then not set either.
	unrepaired bool
	// replicas is the number that verbs which edit the Env write into it.
	replicas int32
	// snapshot is what Admit freezes, and key identifies it to admission plugins.
	snapshot *snapshot.Snapshot
	key      string
}

// decide returns the plan. It depends on the observation alone.
func decide(o *observation) plan {
	var p plan
	named := map[string]bool{}
	for _, member := range o.members() {
		named[member.Name] = true
		p.members = append(p.members, decideMember(o, member))
	}
	if o.Env.Spec.Mode == v1alpha1.SandboxEnvModeOnDemandJob {
		return keepAll(p)
	}
	for name, pool := range o.pools {
		if !named[name] && owns(o.Env, pool) && !terminating(pool) {
			p.orphans = append(p.orphans, name)
		}
	}
	sort.Strings(p.orphans)
	return p
}

// keepAll returns the plan that does nothing, because pools of an unsupported mode are neither created nor deleted.
func keepAll(p plan) plan {
	for i := range p.members {
		m := &p.members[i]
		*m = memberPlan{
			name: m.name, verb: verbKeep, reason: v1alpha1.ReasonModeNotSupported, state: m.state,
			message: "nothing is done in mode OnDemandJob",
		}
	}
	return p
}

func decideMember(o *observation, member *v1alpha1.EnvClusterMember) memberPlan {
	p := memberPlan{name: member.Name, state: v1alpha1.ObservedMemberStateMissing}
	pool := o.pools[member.Name]
	switch {
	case pool != nil && !owns(o.Env, pool) && beingAdopted(o, pool):
		p.verb, p.reason, p.message = verbKeep, reasonPoolAdopting, "its pool is being adopted"
	case pool != nil && !owns(o.Env, pool):
		return decideNotOwned(o, p, pool)
	case !snapshot.Has(member) && pool != nil && snapshot.HasTemplate(&pool.Spec):
		return decideTakeBack(o, p, member, pool)
	case !snapshot.Has(member):
		return decideAdmission(o, p, member, pool)
	case pool == nil:
		p.verb, p.reason, p.message = verbCreate, v1alpha1.ReasonPoolCreated, "its pool is being created"
	case terminating(pool):
		p.verb, p.reason = verbWait, reasonPoolTerminating
		p.message = "its pool is being deleted, and is created again from the snapshot when it is gone"
	default:
		return decideLive(o, p, member, pool)
	}
	return p
}

func decideNotOwned(o *observation, p memberPlan, pool *v1alpha1.SandboxPool) memberPlan {
	if ofPredecessor(o.Env, pool) {
		p.verb, p.reason = verbWait, reasonPoolTerminating
		p.message = "the pool of the deleted Env of this name is still ending; the member's is created when it is gone"
		return p
	}
	if terminating(pool) {
		p.verb, p.reason = verbWait, reasonPoolTerminating
		p.message = "a pool of this name that is not this Env's is being deleted; the member's is created when it is gone"
		return p
	}
	p.verb, p.reason, p.state = verbRefuse, reasonPoolNotOwned, v1alpha1.ObservedMemberStateInconsistent
	p.message = fmt.Sprintf("a pool of this name belongs to %s and is left alone; delete it or rename the member", ownerOf(pool))
	return p
}

func ownerOf(pool *v1alpha1.SandboxPool) string {
	for _, ref := range pool.OwnerReferences {
		return fmt.Sprintf("%s %s (uid %s)", ref.Kind, ref.Name, ref.UID)
	}
	return "no owner"
}

// decideTakeBack restores a lost snapshot from the live pool. A pool that is being deleted suffices, because it still shows what the member
// was. A drained member is therefore not rendered again.
func decideTakeBack(o *observation, p memberPlan, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) memberPlan {
	p.verb, p.reason = verbTakeBack, reasonSnapshotLost
	p.state, p.message = stateOf(o, member, pool), "its snapshot was lost, and is taken back from the live pool"
	p.replicas = keptReplicas(o, member, pool)
	return p
}

// keptReplicas returns the live pool's replicas, or those that the manifest states if it may set them.
func keptReplicas(o *observation, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) int32 {
	if wanted, ok := o.explicitReplicas[member.Name]; ok && !o.autoscaled(member.Config.ScalingGroup) {
		return wanted
	}
	return pool.Spec.Replicas
}

// decideAdmission renders a member that has no snapshot, and no pool to take one back from. A pool without a Pod template keeps its
// replicas, and its spec is completed from the new snapshot.
func decideAdmission(o *observation, p memberPlan, member *v1alpha1.EnvClusterMember, bare *v1alpha1.SandboxPool) memberPlan {
	refuse := func(reason v1alpha1.ConditionReason, message string) memberPlan {
		p.verb, p.state, p.reason, p.message = verbRefuse, v1alpha1.ObservedMemberStateMissing, reason, message
		return p
	}
	ref := o.Env.Spec.TemplateRef
	switch {
	case o.hidden:
		return refuse(v1alpha1.ReasonTemplateNotVisible, podtemplate.NotVisible(ref.Name, o.Env.Namespace))
	case o.Template == nil:
		return refuse(v1alpha1.ReasonTemplateNotFound,
			fmt.Sprintf("there is no SandboxTemplate %q; create it", ref.Name))
	case ref.Version != "" && ref.Version != o.Template.Version:
		return refuse(v1alpha1.ReasonTemplateVersionMismatch,
			fmt.Sprintf("SandboxTemplate %s has version %q, and spec.templateRef asks for %q", ref.Name, o.Template.Version, ref.Version))
	}
	replicas, ok := o.explicitReplicas[member.Name]
	if !ok && member.Config.MinReplicas != nil && !o.allots(member.Config.ScalingGroup) {
		replicas = *member.Config.MinReplicas
	}
	if bare != nil {
		replicas = keptReplicas(o, member, bare)
	}
	rendered, err := o.Render(member, replicas)
	if err != nil {
		return refuse(reasonMemberInvalid, err.Error())
	}
	p.verb, p.reason, p.message = verbAdmit, reasonAdmitted, "its pool is being created"
	p.replicas, p.snapshot = replicas, rendered
	if p.key, err = p.snapshot.Key(o.Env.UID, p.name); err != nil {
		return refuse(reasonMemberInvalid, err.Error())
	}
	if h := o.refused[askedAbout{verbAdmit, member.Name}]; h.question == (question{p.key, replicas}) {
		p.refuse(h.verdict)
	}
	return p
}

func decideLive(o *observation, p memberPlan, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool) memberPlan {
	p.state, p.message = stateOf(o, member, pool), ""
	if p.state == v1alpha1.ObservedMemberStateInconsistent {
		p.reason, p.message = reasonMemberChanged, strings.Join(o.Mismatches(member, pool), "; ")
	}
	points := snapshot.DriftOf(o.Env, member, pool)
	switch {
	case replicas.Interfered(o.Env, o.clusterID, member, pool) && !o.contested[member.Name]:
		p.verb, p.reason, p.replicas = verbRestoreReplicas, reasonReplicasOfOther, pool.Spec.Replicas
	case o.PullSecret && !snapshot.HasPullSecret(&member.Spec, o.Env.Name):
		p.verb, p.reason = verbAddPullSecret, reasonPullSecretFound
	case len(points) > 0:
		p.verb, p.reason, p.drift = verbRepair, v1alpha1.ReasonPoolDrifted, points
		if intended(o, member, pool, points) {
			p.reason = v1alpha1.ReasonPoolUpdated
		}
	default:
		p.verb, p.matches = verbKeep, true
	}
	return p
}

// intended reports whether a pool differs from its snapshot because the Env changed, not because the pool did. If this worker has not yet
// seen the two match, it checks who last wrote the pool's replicas, because replicas are what changes in the Env.
func intended(o *observation, member *v1alpha1.EnvClusterMember, pool *v1alpha1.SandboxPool, points []snapshot.Drift) bool {
	if before, seen := o.matched[member.Name]; seen {
		return askedOf(o.Env, member) != before
	}
	return !slices.ContainsFunc(points, func(d snapshot.Drift) bool { return d.What != snapshot.Replicas }) && replicas.PoolSetByUs(pool)
}

// beingAdopted reports whether the Env was created for a pool that does not have the owner reference yet.
func beingAdopted(o *observation, pool *v1alpha1.SandboxPool) bool {
	uid := o.Env.Annotations[v1alpha1.AdoptedPoolAnnotationKey]
	return uid != "" && uid == string(pool.UID) && !v1alpha1.HasEnvOwner(pool)
}
