// SPDX-License-Identifier: Apache-2.0

package env

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandboxcache"
	"navix.sh/atoll/worker/internal/snapshot"
)

// observation is everything that one decision about an Env is made from.
type observation struct {
	snapshot.Source
	clusterID string
	// now is the time of the API server's clock, and since returns how long ago it showed another time. After a step of that
	// clock, since is not the difference of the two (I11).
	now   time.Time
	since func(time.Time) time.Duration
	// hidden: the template has a visibility that leaves this Env's namespace out. It is then handled as if it were missing, but for
	// the reason that is reported.
	hidden bool
	// pools are, by name, the pools that the Env owns and those with the name of a local member.
	pools map[string]*v1alpha1.SandboxPool
	// explicitReplicas has the replicas that a manifest states for a local member without a snapshot. It is read from the
	// document; because in the Go type `spec: {replicas: 0}` equals no spec at all.
	explicitReplicas map[string]int32
	// refused are the questions that plugins must not be asked again yet.
	refused map[askedAbout]held
	// autoscaler: this process runs one.
	autoscaler bool
	// allotted: groups with a maxReplicas grow within rooms alone, which only the autoscaler knows.
	allotted bool
	// matched is what the Env asked when a member's pool was last seen as its snapshot asks, by member, since this process leads.
	matched map[string]asked
	// contested are the members whose replicas another writer keeps setting.
	contested map[string]bool
}

// members returns the local segment; no other becomes pools.
func (o *observation) members() []*v1alpha1.EnvClusterMember { return o.Env.MembersOf(o.clusterID) }

// snapshotsAreKept reports whether the Env's status has the snapshot of every local member that has one, with its replicas, and no
// other: a manifest that is applied without what it states now must not lose it.
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

// ownedPool returns a member's pool; nil if there is none, or it is not the Env's.
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

// allots reports whether a new member of a scaling group starts empty, for the autoscaler to fill it as far as the group's room allows.
func (o *observation) allots(group string) bool {
	return o.allotted && o.autoscaled(group) && o.Env.ScalingGroup(group).MaxReplicas != nil
}

// observedLocally returns the local status segment as last written; nil before the first write.
func (o *observation) observedLocally() *v1alpha1.EnvClusterStatus {
	for i := range o.Env.Status.Clusters {
		if o.Env.Status.Clusters[i].ClusterID == o.clusterID {
			return &o.Env.Status.Clusters[i]
		}
	}
	return nil
}

// owns reports whether the Env owns the pool, by uid; because the pool may be of a deleted Env of the same name.
func owns(env *v1alpha1.SandboxEnv, pool *v1alpha1.SandboxPool) bool {
	for _, ref := range pool.OwnerReferences {
		if ref.UID == env.UID {
			return true
		}
	}
	return false
}

// ofPredecessor reports whether the pool is of a deleted Env of the same name. Kubernetes deletes it after that Env, perhaps later.
func ofPredecessor(env *v1alpha1.SandboxEnv, pool *v1alpha1.SandboxPool) bool {
	owner := metav1.GetControllerOf(pool)
	return owner != nil && owner.APIVersion == v1alpha1.GroupVersion.String() && owner.Kind == v1alpha1.SandboxEnvOwnerKind &&
		owner.Name == env.Name && owner.UID != env.UID
}

func terminating(obj metav1.Object) bool { return obj.GetDeletionTimestamp() != nil }

// keptByOther reports whether another controller keeps the Env, or a pool that it owns. Then neither is written.
func (r *Reconciler) keptByOther(o *observation) bool {
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
