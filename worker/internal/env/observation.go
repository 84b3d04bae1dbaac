// SPDX-License-Identifier: Apache-2.0

package env

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandboxcache"
	"navix.sh/atoll/worker/internal/snapshot"
)

// observation is the complete input of a decision about an Env.
type observation struct {
	snapshot.Source
	clusterID string
	// now is the time of the API server's clock. since returns how long ago that clock showed another time. After a step of the clock, since
	// differs from the difference of the two times (I11).
	now   time.Time
	since func(time.Time) time.Duration
	// hidden is set if the template's visibility excludes this Env's namespace. The template is then treated as missing, with another reason.
	hidden bool
	// pools maps names to the pools that the Env owns and those with the name of a local member.
	pools map[string]*v1alpha1.SandboxPool
	// explicitReplicas has the replicas that a manifest states for a local member without a snapshot. They are read from the document, because
	// in the Go type `spec: {replicas: 0}` equals no spec at all.
	explicitReplicas map[string]int32
	// refused has the questions that must not be repeated to plugins yet.
	refused map[askedAbout]refusal
	// autoscaler is set if this process runs one.
	autoscaler bool
	// allotted is set if groups with a maxReplicas grow only within rooms, which only the autoscaler knows.
	allotted bool
	// matched maps each member to what the Env asked when its pool was last seen to match its snapshot, since this process leads.
	matched map[string]asked
	// contested are the members whose replicas another writer keeps setting.
	contested map[string]bool
}

// members returns the members of the local segment. Only these become pools.
func (o *observation) members() []*v1alpha1.EnvClusterMember { return o.Env.MembersOf(o.clusterID) }

// snapshotsAreKept reports whether the Env's status has exactly the snapshots, with replicas, of the local members that have one. A
// manifest that no longer states a snapshot must not lose it.
func (o *observation) snapshotsAreKept() bool {
	kept := map[string]*v1alpha1.EnvMemberSnapshot{}
	for i := range o.Env.Status.Snapshots {
		kept[o.Env.Status.Snapshots[i].Name] = &o.Env.Status.Snapshots[i]
	}
	n := 0
	for _, member := range o.members() {
		if !snapshot.Has(member) {
			continue
		}
		n++
		frozen := kept[member.Name]
		if frozen == nil || frozen.ClusterID != o.clusterID || !sandboxcache.SameJSON(frozen.Metadata, member.Metadata) ||
			!sandboxcache.SameJSON(frozen.Spec, member.Spec) {
			return false
		}
	}
	return n == len(o.Env.Status.Snapshots)
}

// ownedPool returns a member's pool, or nil if there is none or the Env does not own it.
func (o *observation) ownedPool(name string) *v1alpha1.SandboxPool {
	if pool := o.pools[name]; pool != nil && owns(o.Env, pool) {
		return pool
	}
	return nil
}

// autoscaled reports whether the autoscaler sets the replicas of this scaling group.
func (o *observation) autoscaled(group string) bool {
	g := o.Env.ScalingGroup(group)
	return g != nil && g.Enabled
}

// allots reports whether a new member of a scaling group starts empty. The autoscaler then fills it as far as the group's room allows.
func (o *observation) allots(group string) bool {
	return o.allotted && o.autoscaled(group) && o.Env.ScalingGroup(group).MaxReplicas != nil
}

// observedLocally returns the local status segment as last written, or nil before the first write.
func (o *observation) observedLocally() *v1alpha1.EnvClusterStatus {
	for i := range o.Env.Status.Clusters {
		if o.Env.Status.Clusters[i].ClusterID == o.clusterID {
			return &o.Env.Status.Clusters[i]
		}
	}
	return nil
}

// owns reports whether the Env owns the pool. It compares uids, because the pool may belong to a deleted Env of the same name.
func owns(env *v1alpha1.SandboxEnv, pool *v1alpha1.SandboxPool) bool {
	for _, ref := range pool.OwnerReferences {
		if ref.UID == env.UID {
			return true
		}
	}
	return false
}

// ofPredecessor reports whether the pool belongs to a deleted Env of the same name. Kubernetes deletes the pool after that Env, perhaps
// later.
func ofPredecessor(env *v1alpha1.SandboxEnv, pool *v1alpha1.SandboxPool) bool {
	owner := metav1.GetControllerOf(pool)
	return owner != nil && owner.APIVersion == v1alpha1.GroupVersion.String() && owner.Kind == v1alpha1.SandboxEnvOwnerKind &&
		owner.Name == env.Name && owner.UID != env.UID
}

func terminating(obj metav1.Object) bool { return obj.GetDeletionTimestamp() != nil }

// managedByOther reports whether another controller manages the Env or a pool that it owns. Neither is written then.
func (r *Reconciler) managedByOther(o *observation) bool {
	if r.paused == nil {
		return false
	}
	if r.paused(o.Env) {
		return true
	}
	for name := range o.pools {
		if pool := o.ownedPool(name); pool != nil && r.paused(pool) {
			return true
		}
	}
	return false
}
