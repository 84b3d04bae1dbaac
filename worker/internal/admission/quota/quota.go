// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const (
	// reservedFor is how long a reservation lasts if the cache does not show it.
	reservedFor = 30 * time.Second
	// These are the maximum ages of a snapshot. It may be slightly old, because reservations cover later admissions. For decisions about Pods,
	// which are many, it may be older.
	snapshotAge    = 250 * time.Millisecond
	snapshotAgePod = time.Second
)

// errNotRead means that no decision is possible yet.
var errNotRead = errors.New("ConfigMap " + Name + " has not been read yet")

// Options are the plugin's settings.
type Options struct {
	// ClusterID names the segment of Envs that counts.
	ClusterID string
	// Reader is a cache with pools, Envs, and Pods by pool.
	Reader client.Reader
	// Limits returns the current limits, or false before they were read.
	Limits func() (Limits, bool)
	// Clock measures ages.
	Clock clock.PassiveClock
}

// Quota is the plugin.
type Quota struct {
	Options

	mu       sync.Mutex
	snapshot Snapshot
	taken    time.Time
	reserved map[types.NamespacedName]reservation
	pods     map[types.NamespacedName]pending
}

// reservation is the amount that a pool was admitted.
type reservation struct {
	team     string
	replicas int32
	pod      Amount
	at       time.Time
}

// pending is a Pod that was admitted to a team over its limit. There are never more of them than the limit allows.
type pending struct {
	team   string
	amount Amount
	at     time.Time
}

// New creates the plugin.
func New(o Options) *Quota {
	return &Quota{Options: o, reserved: map[types.NamespacedName]reservation{}, pods: map[types.NamespacedName]pending{}}
}

// Name returns the plugin's name.
func (q *Quota) Name() string { return "team-quota" }

// PreCreatePool admits as many replicas as the team has room for.
func (q *Quota) PreCreatePool(ctx context.Context, change *admission.Change) (admission.Verdict, error) {
	return q.admit(ctx, change)
}

// PreUpdatePool does the same for an existing pool.
func (q *Quota) PreUpdatePool(ctx context.Context, change *admission.Change) (admission.Verdict, error) {
	return q.admit(ctx, change)
}

func (q *Quota) admit(ctx context.Context, change *admission.Change) (admission.Verdict, error) {
	team := change.Pool.Labels[v1alpha1.LabelTeam]
	if team == "" {
		return admission.Admit(change.To), nil
	}
	limits, ok := q.Limits()
	if !ok {
		return admission.Verdict{}, errNotRead
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.look(ctx, snapshotAge); err != nil {
		return admission.Verdict{}, err
	}
	pool := client.ObjectKeyFromObject(change.Pool)
	pod := needs(&change.Pool.Spec.Template.Spec)
	v := Decide(Demand{
		Team: team, Entry: limits.Of(team), Others: q.held(team, pool), Pod: pod, From: change.From, To: change.To,
	})
	switch {
	case change.Probe:
	case v.Replicas > change.From:
		q.reserved[pool] = reservation{team: team, replicas: v.Replicas, pod: pod, at: q.Clock.Now()}
	default:
		delete(q.reserved, pool)
	}
	return v, nil
}

// PreCreatePod refuses Pods beyond the limit, for teams whose pools ask for more than the limit.
func (q *Quota) PreCreatePod(ctx context.Context, request *admission.PodRequest) (admission.Verdict, error) {
	team := request.Pool.Labels[v1alpha1.LabelTeam]
	if team == "" {
		return admission.Admit(1), nil
	}
	limits, ok := q.Limits()
	if !ok {
		return admission.Verdict{}, errNotRead
	}
	entry := limits.Of(team)
	if entry.Err != nil || entry.Limit == (Limit{}) {
		return admission.Admit(1), nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// Replicas that a user has set meanwhile are checked only here.
	if q.snapshot[team][client.ObjectKeyFromObject(request.Pool)].Wanted < request.Pool.Spec.Replicas {
		q.snapshot = nil
	}
	if err := q.look(ctx, snapshotAgePod); err != nil {
		return admission.Verdict{}, err
	}
	if _, over := Exceeds(entry.Limit, q.held(team, types.NamespacedName{})); !over {
		return admission.Admit(1), nil
	}
	live, err := q.livePods(ctx, team)
	if err != nil {
		return admission.Verdict{}, err
	}
	own := needs(&request.Pod.Spec)
	if of, over := Exceeds(entry.Limit, live.Plus(own)); over {
		return admission.Refuse(0, admission.QuotaExceeded, fmt.Sprintf("the quota of team %s is used up: %s", team, of), 0), nil
	}
	q.pods[client.ObjectKeyFromObject(request.Pod)] = pending{team: team, amount: own, at: q.Clock.Now()}
	return admission.Admit(1), nil
}

// look takes a snapshot unless there is a recent one, and drops the reservations that it shows. The caller holds the lock.
func (q *Quota) look(ctx context.Context, maxAge time.Duration) error {
	if q.snapshot == nil || q.Clock.Since(q.taken) > maxAge {
		s, err := gather(ctx, q.Reader, q.ClusterID)
		if err != nil {
			return err
		}
		q.snapshot, q.taken = s, q.Clock.Now()
	}
	for pool, r := range q.reserved {
		if q.Clock.Since(r.at) > reservedFor || q.snapshot[r.team][pool].Wanted >= r.replicas {
			delete(q.reserved, pool)
		}
	}
	return nil
}

// held returns what the team's pools hold or have reserved, except for one pool.
func (q *Quota) held(team string, except types.NamespacedName) Amount {
	var sum Amount
	for pool, holding := range q.snapshot[team] {
		if pool == except {
			continue
		}
		if r, ok := q.reserved[pool]; ok && r.team == team {
			holding.Wanted = max(holding.Wanted, r.replicas)
		}
		sum = sum.Plus(holding.amount())
	}
	for pool, r := range q.reserved {
		if _, there := q.snapshot[team][pool]; r.team == team && pool != except && !there {
			sum = sum.Plus(r.pod.Times(int64(r.replicas)))
		}
	}
	return sum
}

// livePods returns what the team's existing Pods and those being created need. It reads the cache of Pods, because pools report them late.
func (q *Quota) livePods(ctx context.Context, team string) (Amount, error) {
	var sum Amount
	for pool := range q.snapshot[team] {
		pods, err := sandboxcache.PodsOf(ctx, q.Reader, pool)
		if err != nil {
			return Amount{}, fmt.Errorf("listing the Pods of %s: %w", pool, err)
		}
		for _, pod := range pods {
			delete(q.pods, client.ObjectKeyFromObject(pod))
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				sum = sum.Plus(needs(&pod.Spec))
			}
		}
	}
	for name, p := range q.pods {
		if q.Clock.Since(p.at) > reservedFor {
			delete(q.pods, name)
		} else if p.team == team {
			sum = sum.Plus(p.amount)
		}
	}
	return sum, nil
}
