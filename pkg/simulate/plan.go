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

// Plan is everything that a run follows from: the same plan gives the same run, to the byte.
type Plan struct {
	// Name is what pictures and texts are headed with.
	Name string
	// Env is what is scaled.
	Env Env
	// Claims are in the order in which they come.
	Claims []Claim
	// Disturbances are what goes wrong, and when.
	Disturbances []Disturbance
	// Model is how the cluster behaves when nothing goes wrong.
	Model Model
	// Duration is how long is simulated.
	Duration time.Duration
	// Seed decides everything that is random.
	Seed uint64

	// decide is Decide, or what a test has in its place.
	decide func(scalepolicy.Group) scalepolicy.Decision
}

// Env is the part of a SandboxEnv that matters to the autoscaler.
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
	// Runs is how long the sandbox is used once it is there.
	Runs time.Duration
	// Group is the scaling group that is asked for; empty is any.
	Group string
}

// Model is how a cluster behaves. Times of Pods are as in most clusters where the image is on the node already.
type Model struct {
	// PodStart is from the Pod's creation to its being ready, so idle.
	PodStart Spread
	// Recycle is from a sandbox's end to its Pod, or the one that replaces it, being idle.
	Recycle Spread
	// CacheLag is how long the worker's caches take to show a change.
	CacheLag Spread
	// Apply is how long replicas take from the Env to the pool reconciler.
	Apply Spread
	// Patience is how long a claim waits in the queue before it is refused.
	Patience time.Duration
	// QueueCapacity bounds the claims that wait for one pool.
	QueueCapacity int
	NewestFirst   bool
	// Resync is how often the worker looks although nothing has happened. It makes good what a cache has lost.
	Resync time.Duration
	// Quota is how many Pods admission grants all pools of a cluster together; negative is any number.
	Quota int32
}

// DefaultModel is a cluster that is well.
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

// Spread is a time that varies: never outside Min and Max, mostly near Typical.
type Spread struct{ Min, Typical, Max time.Duration }

// Exactly is a time that does not vary.
func Exactly(d time.Duration) Spread { return Spread{d, d, d} }

// times is the spread, longer by a factor.
func (s Spread) times(factor float64) Spread {
	scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) * factor).Round(time.Millisecond) }
	return Spread{scale(s.Min), scale(s.Typical), scale(s.Max)}
}

// draw takes a time below Typical as often as one above it, each evenly from its side. It is in whole milliseconds, so that a
// processor which rounds otherwise makes no other run.
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

// Kind is a way in which something goes wrong, or a user interferes.
type Kind string

// The kinds of disturbances. Factor, Limit and Replicas are those of a Disturbance.
const (
	// SlowPods take Factor times as long to start and to be recycled.
	SlowPods Kind = "SlowPods"
	// TeamQuota: admission grants the cluster's pools no more than Limit Pods together.
	TeamQuota Kind = "TeamQuota"
	// AdmissionFails: admission returns an error.
	AdmissionFails Kind = "AdmissionFails"
	// NamespaceQuota: the API server creates no more than Limit Pods, though admission granted them.
	NamespaceQuota Kind = "NamespaceQuota"
	// LostUpdates: a share of Factor of what happens to Pods is not seen in the cache before the next resync after To.
	LostUpdates Kind = "LostUpdates"
	// SlowCache: the cache takes Factor times as long.
	SlowCache Kind = "SlowCache"
	// ManualEdit: a user sets a pool's replicas at From, and every Every until To where that is set.
	ManualEdit Kind = "ManualEdit"
	// WorkerAway: no decisions are made. What is in memory is lost.
	WorkerAway Kind = "WorkerAway"
	// NodeLost: a share of Factor of all Pods is gone at From, with the sandboxes in them.
	NodeLost Kind = "NodeLost"
)

// Disturbance is one of them, from one time to another.
type Disturbance struct {
	Kind     Kind
	From, To time.Duration
	Cluster  string // empty is every one
	Pool     string // of ManualEdit; empty is the first one
	Factor   float64
	Limit    int32
	Replicas int32
	Every    time.Duration
}

// hits reports whether the disturbance is on in a cluster.
func (d *Disturbance) hits(kind Kind, cluster string, at time.Duration) bool {
	return d.Kind == kind && d.From <= at && at < d.To && (d.Cluster == "" || d.Cluster == cluster)
}

func sortClaims(claims []Claim) {
	slices.SortStableFunc(claims, func(a, b Claim) int { return cmp.Compare(a.At, b.At) })
}
