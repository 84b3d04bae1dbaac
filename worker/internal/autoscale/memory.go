// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/autoscale"
)

// steady is the API server's time at the start of this process, and goes on monotonically.
type steady struct {
	local clock.PassiveClock
	times clock.PassiveClock

	once  sync.Once
	base  time.Time
	start time.Time

	mu    sync.Mutex
	ahead time.Duration // of the API server's clock, by the steps that it has made since
}

// stepped is what counts as a step of a clock whose times come in whole seconds.
const stepped = 5 * time.Second

func (s *steady) now() time.Time {
	s.once.Do(func() { s.base, s.start = s.times.Now(), s.local.Now() })
	return s.base.Add(s.local.Since(s.start))
}

// from is when it was, by steady, that the API server's clock showed t, or later. What lies ahead is now.
func (s *steady) from(t time.Time) time.Time {
	now := s.now()
	moment := now.Add(-s.times.Since(t))
	if moment.Sub(t).Abs() < stepped {
		moment = t // and not a second off, which would be written
	}
	if moment.After(now) {
		return now
	}
	return moment
}

// written is what the API server's clock shows at, or showed, when it is t.
func (s *steady) written(t time.Time) time.Time {
	ahead := s.times.Now().Sub(s.now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if (ahead - s.ahead).Abs() >= stepped {
		s.ahead = ahead
	}
	return t.Add(s.ahead)
}

// memo is what is remembered of one pool. One reconcile at a time uses it.
type memo struct {
	uid types.UID
	env types.NamespacedName
	// status is the truth, by steady; what is in the pool follows it.
	status *v1alpha1.PoolAutoScalingStatus
	// version is the pool's after our last write: an older one in the cache is not compared with.
	version uint64
	// softSince is since when only what need not be written at once differs.
	softSince time.Time

	created time.Time // when a sandbox was last asked for, by steady
	flushed time.Time // the one of it that the annotation has
	flushAt time.Time // when that was written

	refused time.Time // of the latest refusal of a Pod, by steady

	idle     map[types.UID]idleTime
	attempt  time.Time // of the last question to admission
	decided  autoscale.Reason
	toldFull fullness
}

type idleTime struct {
	value string
	age   time.Duration // at seen
	seen  time.Time
	mark  string
	since time.Time // of the mark
}

// memory is bounded by the pools of enabled groups.
type memory struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]*memo
	envs  map[types.NamespacedName]uint64 // the Env's version after our last write
}

func newMemory() *memory {
	return &memory{pools: map[types.NamespacedName]*memo{}, envs: map[types.NamespacedName]uint64{}}
}

// of is the memo of a pool, made from what its last leader left in it if there is none.
func (m *memory) of(key, env types.NamespacedName, pool *v1alpha1.SandboxPool, from func(time.Time) time.Time) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pools[key]
	if known == nil || known.uid != pool.UID {
		known = &memo{uid: pool.UID, env: env, status: mapped(pool.Status.AutoScaling, from)}
		at, err := time.Parse(time.RFC3339, pool.Annotations[v1alpha1.LastSandboxCreateTimeAnnotationKey])
		if err == nil {
			known.created = from(at)
			known.flushed = known.created
			if !known.created.Equal(at) {
				known.flushed = time.Time{} // the annotation is put right
			}
		}
		m.pools[key] = known
	}
	known.env = env
	return known
}

// mapped is a status whose times are of another clock. What an earlier leader left is mapped once, when its pool is seen
// first: a time ahead that became now at each look would hold a cooldown back until the clock had caught up.
func mapped(status *v1alpha1.PoolAutoScalingStatus, to func(time.Time) time.Time) *v1alpha1.PoolAutoScalingStatus {
	s := status.DeepCopy()
	if s == nil {
		return nil
	}
	for _, t := range []*metav1.Time{s.LastScaleUpTime, s.LastScaleDownTime, s.LastScaleUpAttemptTime, s.IdleZeroSince} {
		if t != nil {
			t.Time = to(t.Time)
		}
	}
	return s
}

// keep forgets the Env's pools that are not named.
func (m *memory) keep(env types.NamespacedName, named map[types.NamespacedName]bool) (gone []types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, known := range m.pools {
		if known.env == env && !named[key] {
			delete(m.pools, key)
			gone = append(gone, key)
		}
	}
	if len(named) == 0 {
		delete(m.envs, env)
	}
	return gone
}

// behind reports an Env older than our last write of it.
func (m *memory) behind(env types.NamespacedName, version uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return version < m.envs[env]
}

func (m *memory) wrote(env types.NamespacedName, version uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.envs[env] = max(m.envs[env], version)
}

// sameTime compares as a status is stored, in whole seconds.
func sameTime(a, b *metav1.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Unix() == b.Unix()
}

// urgent tells whether statuses differ in what is written at once, and whether in anything.
func urgent(a, b *v1alpha1.PoolAutoScalingStatus) (now, atAll bool) {
	if a == nil || b == nil {
		return a != b, a != b
	}
	now = !sameTime(a.LastScaleUpTime, b.LastScaleUpTime) || !sameTime(a.LastScaleDownTime, b.LastScaleDownTime) ||
		!sameTime(a.LastScaleUpAttemptTime, b.LastScaleUpAttemptTime) ||
		a.LastScaleUpAttemptResult != b.LastScaleUpAttemptResult || a.ScaleUpErrorMessage != b.ScaleUpErrorMessage
	return now, now || !sameTime(a.IdleZeroSince, b.IdleZeroSince) || a.ObservedGeneration != b.ObservedGeneration
}
