// SPDX-License-Identifier: Apache-2.0

package env

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/snapshot"
)

// observation is everything that one decision about an Env is made from.
type observation struct {
	snapshot.Source
	clusterID string
	// now is what the API server's clock shows, and since tells how long before that it showed another time: the difference of
	// the two is something else once the clock was stepped (I11).
	now   time.Time
	since func(time.Time) time.Duration
	// pools are, by name, the pools that the Env owns and those that are named like a local member.
	pools map[string]*v1alpha1.SandboxPool
	// explicitReplicas has the replicas that a manifest states for a local member without a snapshot. It comes from the
	// document: in the Go type, `spec: {replicas: 0}` and no spec at all are the same.
	explicitReplicas map[string]int32
	// refused are the questions that admission plugins are not to be asked again yet.
	refused map[askedAbout]held
	// autoscaler: this process runs one.
	autoscaler bool
	// contested are the members whose replicas somebody else keeps setting.
	contested map[string]bool
}

// members is the local segment; no other is ever materialised.
func (o *observation) members() []*v1alpha1.EnvClusterMember { return o.Env.MembersOf(o.clusterID) }

// ownedPool returns a member's pool; nil if there is none, or it is not the Env's.
func (o *observation) ownedPool(name string) *v1alpha1.SandboxPool {
	if pool := o.pools[name]; pool != nil && owns(o.Env, pool) {
		return pool
	}
	return nil
}

// autoscaled reports whether replicas of this scaling group are the autoscaler's.
func (o *observation) autoscaled(group string) bool {
	g := o.Env.ScalingGroup(group)
	return g != nil && g.Enabled
}

// observedLocally is the local status segment as last written; nil before the first time.
func (o *observation) observedLocally() *v1alpha1.EnvClusterStatus {
	for i := range o.Env.Status.Clusters {
		if o.Env.Status.Clusters[i].ClusterID == o.clusterID {
			return &o.Env.Status.Clusters[i]
		}
	}
	return nil
}

// owns reports whether the Env owns the pool, by uid: a pool of an Env of the same name that was deleted is not its own.
func owns(env *v1alpha1.SandboxEnv, pool *v1alpha1.SandboxPool) bool {
	for _, ref := range pool.OwnerReferences {
		if ref.UID == env.UID {
			return true
		}
	}
	return false
}

func terminating(obj metav1.Object) bool { return obj.GetDeletionTimestamp() != nil }

// keptByOther reports whether another controller keeps the Env, or a pool that it owns. Then nothing is written to either.
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
