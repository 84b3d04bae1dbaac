// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/allotpolicy"
	"navix.sh/atoll/pkg/scalepolicy"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/worker/internal/rooms"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

// errNotReady means that the caches or the claim service are behind. Their event causes the next reconcile.
var errNotReady = errors.New("not all of it is known yet")

// group is an enabled group with its members.
type group struct {
	scalepolicy.Group
	members []*target       // in the order of Group.Members
	room    allotpolicy.Key // key of its room
}

// target is a member with its pool.
type target struct {
	key  types.NamespacedName
	pool *v1alpha1.SandboxPool // belongs to the cache
	memo *memo
	pods map[types.UID]*corev1.Pod // idle ones; they belong to the cache
	// waiting is the number of waiting claims.
	waiting int32
	// ending counts Pods that are being deleted.
	ending int32
	// stuck means that a Pod is long overdue or cannot be created. More Pods would fare no better, and no claim should wait for one.
	stuck bool
}

// stuckAfter is how long a Pod may take to become ready.
const stuckAfter = 2 * time.Minute

// gather collects the enabled groups of an Env, and the pools outside of these groups.
func (r *Reconciler) gather(ctx context.Context, env *v1alpha1.SandboxEnv) (groups []*group, others []*v1alpha1.SandboxPool, err error) {
	owned, err := sandboxcache.PoolsOf(ctx, r.client, env)
	if err != nil {
		return nil, nil, err
	}
	pools := map[string]*v1alpha1.SandboxPool{}
	for i := range owned {
		if !r.paused(&owned[i]) {
			pools[owned[i].Name] = &owned[i]
		}
	}
	groups, members := groupsOf(env, r.clusterID, pools, r.steady.now())
	for _, m := range members {
		delete(pools, m.pool.Name)
		if err := r.gatherMember(ctx, env, m); err != nil {
			return nil, nil, err
		}
	}
	for _, pool := range pools {
		others = append(others, pool)
	}
	r.observeRooms(client.ObjectKeyFromObject(env), groups)
	return groups, others, nil
}

// observeRooms reports the holdings of groups with a maxReplicas, and sets their rooms.
func (r *Reconciler) observeRooms(env types.NamespacedName, groups []*group) {
	if r.rooms == nil {
		return
	}
	seen := map[string]allotpolicy.Observation{}
	for _, g := range groups {
		if limit := g.Policy.MaxReplicas; limit != nil {
			o := allotpolicy.Observation{Holding: allotpolicy.Holding{
				Present: true, Max: *limit, Min: ptr.Deref(g.Policy.MinReplicas, 0), Held: g.Held(),
			}}
			for _, t := range g.members {
				o.Ending += t.ending
			}
			seen[g.Policy.Name] = o
		}
	}
	r.rooms.Observe(env, seen)
	for _, g := range groups {
		if g.Policy.MaxReplicas != nil {
			g.room = rooms.KeyOf(env, g.Policy.Name)
			g.Room, g.Floor = r.rooms.Room(g.room), r.rooms.Floor(g.room)
		}
	}
}

// grouped is a member of an enabled group, with its pool.
type grouped struct {
	*v1alpha1.EnvClusterMember
	group *group
	pool  *v1alpha1.SandboxPool
}

// groupsOf returns the enabled groups of an Env, and their members that can be scaled. A member whose pool is absent, or belongs to another
// owner, counts with its replicas, because the pool will be created from the snapshot without asking for room again.
func groupsOf(
	env *v1alpha1.SandboxEnv, clusterID string, pools map[string]*v1alpha1.SandboxPool, now time.Time,
) (groups []*group, members []grouped) {
	byName := map[string]*group{}
	if env.Spec.Autoscaling != nil {
		for i := range env.Spec.Autoscaling.Groups {
			if policy := &env.Spec.Autoscaling.Groups[i]; policy.Enabled {
				g := &group{Group: scalepolicy.Group{ClusterID: clusterID, Policy: *policy, Now: now}}
				byName[policy.Name] = g
				groups = append(groups, g)
			}
		}
	}
	for _, member := range env.MembersOf(clusterID) {
		g, pool := byName[member.Config.ScalingGroup], pools[member.Name]
		switch {
		case g == nil || member.Config.ScalingGroup == "":
		case pool != nil:
			members = append(members, grouped{member, g, pool})
		case len(member.Spec.Template.Spec.Containers) > 0: // has a snapshot
			g.Others = segment.Sum(g.Others, max(0, member.Spec.Replicas))
		}
	}
	return groups, members
}

func (r *Reconciler) gatherMember(ctx context.Context, env *v1alpha1.SandboxEnv, member grouped) error {
	g, pool := member.group, member.pool
	key, name := client.ObjectKeyFromObject(pool), client.ObjectKeyFromObject(env)
	stats, ok := r.claims.Stats(key)
	if !ok {
		return fmt.Errorf("pool %s has no queue yet: %w", key, errNotReady)
	}
	t := &target{key: key, pool: pool, memo: r.memory.of(key, name, pool, r.steady), pods: map[types.UID]*corev1.Pod{}, waiting: stats.Waiting}
	if !stats.LastCreate.IsZero() {
		t.memo.created = g.Now.Add(-r.clock.Since(stats.LastCreate))
	}
	m := scalepolicy.Member{
		Name: member.Name, Replicas: member.Spec.Replicas,
		MinReplicas: member.Config.MinReplicas, MaxReplicas: member.Config.MaxReplicas,
		ScaleUpPriority:   member.Config.EffectiveScaleUpPriority(),
		ScaleDownPriority: member.Config.EffectiveScaleDownPriority(),
		Queue:             stats.Waiting, LastCreate: t.memo.created,
		Status: t.memo.status, Generation: pool.Generation,
		Contested: r.contests.Contested(name, member.Name),
		Unsettled: pool.DeletionTimestamp != nil || member.Spec.Replicas != pool.Spec.Replicas || versionOf(pool) < t.memo.version,
	}
	if r.refused != nil {
		if message, age, ok := r.refused(key); ok {
			// Keep the time of the same refusal between reconciles. Otherwise its seconds would fluctuate.
			if at := g.Now.Add(-age); at.Sub(t.memo.refused).Abs() > time.Second/2 {
				t.memo.refused = at
			}
			m.Refused = &scalepolicy.Refusal{At: t.memo.refused, Message: message}
		}
	}
	if err := r.gatherPods(ctx, t, &m); err != nil {
		return err
	}
	countMissing(&m)
	t.stuck = m.Stuck > 0
	m.Pods.ReadyIdle = min(stats.ReadyIdle, m.Pods.Idle)
	g.Members, g.members = append(g.Members, m), append(g.members, t)
	return nil
}

// countMissing counts the Pods that are not created yet as being provisioned. While Pods are refused, no claim should wait for them.
func countMissing(m *scalepolicy.Member) {
	missing := max(0, m.Replicas-m.Pods.Live())
	m.Provisioning += missing
	if m.Refused != nil {
		m.Stuck += missing
	}
}

// gatherPods counts the Pods of a member, and records the idle times.
func (r *Reconciler) gatherPods(ctx context.Context, t *target, m *scalepolicy.Member) error {
	pods, err := sandboxcache.PodsOf(ctx, r.client, t.key)
	if err != nil {
		return err
	}
	idle := map[types.UID]idleTime{}
	for _, pod := range pods {
		if !metav1.IsControlledBy(pod, t.pool) {
			continue
		}
		if pod.DeletionTimestamp != nil {
			t.ending++
			continue
		}
		switch sandbox.PhaseOf(pod) {
		case sandbox.Running:
			m.Pods.Running++
		case sandbox.Starting:
			m.Pods.Starting++
		case sandbox.Stopping:
			m.Pods.Stopping++
			m.Provisioning++
		case sandbox.Idle:
			m.Pods.Idle++
			at := r.timed(t.memo.idle[pod.UID], pod)
			idle[pod.UID], t.pods[pod.UID] = at, pod
			one := scalepolicy.IdlePod{
				Name: pod.Name, UID: pod.UID, Ready: ready(pod), IdleFor: at.age + r.clock.Since(at.seen), Marked: at.mark != "",
			}
			if coming(pod) {
				m.Provisioning++
				if one.IdleFor > stuckAfter {
					m.Stuck++
				}
			}
			if one.Marked {
				one.MarkedFor = r.clock.Since(at.since)
			}
			m.IdlePods = append(m.IdlePods, one)
		}
	}
	t.memo.idle = idle
	return nil
}

// coming reports whether an idle Pod is not ready yet but will be. On a node that does not serve it may never be.
func coming(pod *corev1.Pod) bool {
	switch sandbox.Claimable(pod, nil) {
	case sandbox.NotReady, sandbox.ImageMismatch:
		return true
	}
	return false
}

// ready reports whether a claim could get the idle Pod, as far as its node allows.
func ready(pod *corev1.Pod) bool {
	switch sandbox.Claimable(pod, nil) {
	case sandbox.ClaimableNow, sandbox.NodeUnknown:
		return true
	}
	return false
}

// timed continues the record of an idle Pod, or starts one.
func (r *Reconciler) timed(known idleTime, pod *corev1.Pod) idleTime {
	since, mark := sandbox.IdleSince(pod), sandbox.MarkedAt(pod)
	if value := since.UTC().Format(time.RFC3339); known.value != value {
		known = idleTime{value: value, age: max(0, r.times.Since(since)), seen: r.clock.Now()}
	}
	if known.mark != mark {
		known.mark, known.since = mark, r.clock.Now()
	}
	return known
}

// versionOf parses a resourceVersion. Those of one cluster are ordered.
func versionOf(object client.Object) uint64 {
	n, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
