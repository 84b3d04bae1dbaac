// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/scalepolicy"
	"navix.sh/atoll/worker/internal/apitime"
)

// steady is the API server's time at the start of this process, and advances monotonically.
type steady struct {
	local clock.PassiveClock
	times *apitime.Clock

	once  sync.Once
	base  time.Time
	start time.Time
}

func (s *steady) now() time.Time {
	s.once.Do(func() { s.base, s.start = s.times.Now(), s.local.Now() })
	return s.base.Add(s.local.Since(s.start))
}

// from converts a time of the API server's clock to steady time. A time in the future becomes now.
func (s *steady) from(t time.Time) time.Time { return s.now().Add(-s.times.Since(t)) }

// written converts a steady time to the API server's clock.
func (s *steady) written(t time.Time) time.Time { return s.times.Ago(max(0, s.now().Sub(t))) }

// memo is the state of one pool between reconciles. Only one reconcile at a time uses it.
type memo struct {
	uid types.UID
	env types.NamespacedName
	// status is authoritative, in steady time; the pool's status follows it.
	status *v1alpha1.PoolAutoScalingStatus
	stamps [4]stamp // of the status's times
	// version is the pool's version after our last write. The cache is not compared while it has an older one.
	version uint64
	// softSince is since when only fields without urgency differ.
	softSince time.Time

	created time.Time // last request for a sandbox, in steady time
	flushed time.Time // the request that the annotation shows
	flushAt time.Time // when the annotation was written

	refused time.Time // time of the latest refusal of a Pod, in steady time

	idle         map[types.UID]idleTime
	attempt      time.Time     // last request to admission
	wait         time.Duration // after attempt, as the refusing plugin asked
	decided      scalepolicy.Reason
	reportedFull fullness
}

// stamp is a steady time and its written form, which does not change when the API server's clock is stepped.
type stamp struct{ own, written time.Time }

type idleTime struct {
	value string
	age   time.Duration // at seen
	seen  time.Time
	mark  string
	since time.Time // when the mark was first seen
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

// of returns the memo of a pool. A new memo starts from the status that the last leader wrote.
func (m *memory) of(key, env types.NamespacedName, pool *v1alpha1.SandboxPool, s *steady) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pools[key]
	if known == nil || known.uid != pool.UID {
		known = &memo{uid: pool.UID, env: env}
		known.takeOver(pool.Status.AutoScaling, s)
		at, err := time.Parse(time.RFC3339, pool.Annotations[v1alpha1.LastSandboxCreateTimeAnnotationKey])
		if err == nil {
			known.created = s.from(at)
			if !at.After(s.times.Now()) { // else the annotation is corrected
				known.flushed = known.created
			}
		}
		m.pools[key] = known
	}
	known.env = env
	return known
}

// takeOver continues from the status of an earlier leader. A time in the future, from a clock that was fast, becomes now, but only once. If
// it did so in each reconcile, a cooldown would not run down until the clock had caught up.
func (m *memo) takeOver(left *v1alpha1.PoolAutoScalingStatus, s *steady) {
	m.status = left.DeepCopy()
	for i, t := range timesOf(m.status) {
		if t == nil {
			continue
		}
		written := t.Time
		t.Time = s.from(written)
		if !written.After(s.times.Now()) {
			m.stamps[i] = stamp{own: t.Time, written: written}
		}
	}
}

// written returns the status as it is or will be written in the pool.
func (m *memo) written(s *steady) *v1alpha1.PoolAutoScalingStatus {
	out := m.status.DeepCopy()
	for i, t := range timesOf(out) {
		if t == nil {
			continue
		}
		if !m.stamps[i].own.Equal(t.Time) {
			m.stamps[i] = stamp{own: t.Time, written: s.written(t.Time)}
		}
		t.Time = m.stamps[i].written
	}
	return out
}

func timesOf(s *v1alpha1.PoolAutoScalingStatus) [4]*metav1.Time {
	if s == nil {
		return [4]*metav1.Time{}
	}
	return [4]*metav1.Time{s.LastScaleUpTime, s.LastScaleDownTime, s.LastScaleUpAttemptTime, s.IdleZeroSince}
}

// keep drops the Env's pools that are not in named.
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

// behind reports whether the given version of the Env is older than our last write.
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

// sameTime compares times in whole seconds, as a status stores them.
func sameTime(a, b *metav1.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Unix() == b.Unix()
}

// urgent reports whether two statuses differ in a field that must be written immediately, and whether they differ at all.
func urgent(a, b *v1alpha1.PoolAutoScalingStatus) (now, atAll bool) {
	if a == nil || b == nil {
		return a != b, a != b
	}
	now = !sameTime(a.LastScaleUpTime, b.LastScaleUpTime) || !sameTime(a.LastScaleDownTime, b.LastScaleDownTime) ||
		!sameTime(a.LastScaleUpAttemptTime, b.LastScaleUpAttemptTime) ||
		a.LastScaleUpAttemptResult != b.LastScaleUpAttemptResult || a.ScaleUpErrorMessage != b.ScaleUpErrorMessage
	return now, now || !sameTime(a.IdleZeroSince, b.IdleZeroSince) || a.ObservedGeneration != b.ObservedGeneration
}
