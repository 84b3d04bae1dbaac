// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/scalepolicy"
)

// Plan is the whole input of a run: the same plan gives the same run, to the byte.
type Plan struct {
	// Name is the title of pictures and texts.
	Name string
	// Env is the Env to scale.
	Env Env
	// Claims are in the order of arrival.
	Claims []Claim
	// Disturbances are the faults, and when they happen.
	Disturbances []Disturbance
	// Model is the cluster's behaviour without faults.
	Model Model
	// Duration is the simulated time.
	Duration time.Duration
	// Seed determines all randomness.
	Seed uint64

	// decide is Decide, or a test's replacement.
	decide func(scalepolicy.Group) scalepolicy.Decision
}

// Env is the autoscaler's part of a SandboxEnv.
type Env struct {
	Name   string
	Groups []v1alpha1.EnvAutoscalingGroup
	Pools  []Pool
}

// Pool is one member, in one cluster.
type Pool struct {
	Cluster  string
	Name     string
	Replicas int32
	Config   v1alpha1.EnvClusterMemberConfig
}

// Claim is one request for a sandbox.
type Claim struct {
	At time.Duration
	// Runs is how long the sandbox is used after it starts.
	Runs time.Duration
	// Group is the requested scaling group; empty: any.
	Group string
}

// Model is a cluster's behaviour. Pod times are typical of nodes that have the image already.
type Model struct {
	// PodStart is the time from the Pod's creation until it is ready, so idle.
	PodStart Spread
	// Recycle is the time from a sandbox's end until its Pod, or the replacement, is idle.
	Recycle Spread
	// CacheLag is the delay until the worker's caches show a change.
	CacheLag Spread
	// Apply is the time for replicas to get from the Env to the pool reconciler.
	Apply Spread
	// Patience is how long a claim waits in the queue before it is refused.
	Patience time.Duration
	// QueueCapacity bounds the waiting claims of one pool.
	QueueCapacity int
	// Resync is the interval of the worker's resync, which restores updates lost by a cache.
	Resync time.Duration
	// Quota is how many Pods admission grants to all pools of a cluster together; negative: no limit.
	Quota int32
}

// DefaultModel is a healthy cluster.
func DefaultModel() Model {
	return Model{
		PodStart:      Typical(8 * time.Second),
		Recycle:       Spread{2 * time.Second, 4 * time.Second, 10 * time.Second},
		CacheLag:      Spread{20 * time.Millisecond, 80 * time.Millisecond, 400 * time.Millisecond},
		Apply:         Spread{50 * time.Millisecond, 150 * time.Millisecond, 600 * time.Millisecond},
		Patience:      2 * time.Minute,
		QueueCapacity: 8192,
		Resync:        10 * time.Second,
		Quota:         -1,
	}
}

// Spread is a distribution of times: between Min and Max, mostly near Typical.
type Spread struct{ Min, Typical, Max time.Duration }

// Exactly is a constant time.
func Exactly(d time.Duration) Spread { return Spread{d, d, d} }

// times scales the spread by a factor.
func (s Spread) times(factor float64) Spread {
	scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) * factor).Round(time.Millisecond) }
	return Spread{scale(s.Min), scale(s.Typical), scale(s.Max)}
}

// draw returns a random time: with equal probability below or above Typical, and uniform on each side. It is rounded to milliseconds,
// because floating-point rounding differs between processors and must not change the run.
func (s Spread) draw(r *rand.Rand) time.Duration {
	from, to := s.Min, s.Typical
	if r.Uint64()&1 == 1 {
		from, to = s.Typical, s.Max
	}
	if to <= from {
		return from
	}
	return from + time.Duration(r.Int64N(int64(to-from)/int64(time.Millisecond)+1))*time.Millisecond
}

// Kind is a kind of fault, or of interference by a user.
type Kind string

// The kinds of disturbances. Factor, Limit and Replicas are fields of a Disturbance.
const (
	// SlowPods: starting and recycling take Factor times as long.
	SlowPods Kind = "SlowPods"
	// TeamQuota: admission grants the cluster's pools at most Limit Pods together.
	TeamQuota Kind = "TeamQuota"
	// AdmissionFails: admission returns an error.
	AdmissionFails Kind = "AdmissionFails"
	// NamespaceQuota: the API server creates at most Limit Pods, though admission granted more.
	NamespaceQuota Kind = "NamespaceQuota"
	// LostUpdates: the cache misses the fraction Factor of the Pods' changes, until the next resync after To.
	LostUpdates Kind = "LostUpdates"
	// SlowCache: the cache's lag is Factor times as long.
	SlowCache Kind = "SlowCache"
	// ManualEdit: a user sets a pool's replicas at From, and then every Every until To, if set.
	ManualEdit Kind = "ManualEdit"
	// WorkerAway: there are no decisions, and the worker's memory is lost.
	WorkerAway Kind = "WorkerAway"
	// NodeLost: the fraction Factor of all Pods is lost at From, with their sandboxes.
	NodeLost Kind = "NodeLost"
)

// Disturbance is a fault over a period.
type Disturbance struct {
	Kind     Kind
	From, To time.Duration
	Cluster  string // empty: every cluster
	Pool     string // of ManualEdit; empty: the first one
	Factor   float64
	Limit    int32
	Replicas int32
	Every    time.Duration
}

// hits reports whether the disturbance is active in a cluster.
func (d *Disturbance) hits(kind Kind, cluster string, at time.Duration) bool {
	return d.Kind == kind && d.From <= at && at < d.To && (d.Cluster == "" || d.Cluster == cluster)
}

func sortClaims(claims []Claim) {
	slices.SortStableFunc(claims, func(a, b Claim) int { return cmp.Compare(a.At, b.At) })
}
