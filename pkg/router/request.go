// SPDX-License-Identifier: Apache-2.0

package router

import (
	"slices"

	"navix.sh/atoll/pkg/segment"
)

// MaxExcluded is the number of refusals that a request remembers. A claim makes fewer attempts.
const MaxExcluded = 8

// Request is the part of a claim that decides where it may go. The zero value may go anywhere.
type Request struct {
	InstanceType    string
	Multiplier      int32
	ScalingGroup    string
	Clusters        []string // preferred, first is best
	RequireClusters bool     // makes Clusters binding
	NoQueue         bool
	Team            string   // team of the caller; clusters may be limited to teams
	Barred          []string // clusters that must not get the request, unlike refusals without a bound

	// Candidates are excluded by name, not by index, because a retry uses a newer view.
	excluded  [MaxExcluded]exclusion
	nExcluded uint8
}

type exclusion struct{ cluster, member string }

// Exclude excludes a candidate that refused the request. If there are more than MaxExcluded, the oldest exclusion is dropped.
func (r *Request) Exclude(cluster, member string) {
	r.excluded[r.nExcluded%MaxExcluded] = exclusion{cluster, member}
	if r.nExcluded++; r.nExcluded == 2*MaxExcluded {
		r.nExcluded = MaxExcluded
	}
}

// ExcludeCluster excludes all members of a cluster.
func (r *Request) ExcludeCluster(cluster string) { r.Exclude(cluster, "") }

// selective reports whether the request has conditions that require checking each candidate's details.
func (r *Request) selective() bool {
	return r.InstanceType != "" || r.Multiplier != 0 || r.ScalingGroup != "" || len(r.Clusters) > 0 || len(r.Barred) > 0 || r.nExcluded > 0
}

// mismatch returns the condition of the request that the candidate does not meet, or "".
func (r *Request) mismatch(c Candidate) Reason {
	if reason := r.unsuited(c); reason != "" {
		return reason
	}
	if slices.Contains(r.Barred, c.Cluster.ID) {
		return AlreadyRefused
	}
	for _, e := range r.excluded[:min(r.nExcluded, MaxExcluded)] {
		if e.cluster == c.Cluster.ID && (e.member == "" || e.member == c.Member().Name) {
			return AlreadyRefused
		}
	}
	return ""
}

// unsuited is mismatch without exclusions and barred clusters.
func (r *Request) unsuited(c Candidate) Reason {
	if r.RequireClusters && len(r.Clusters) > 0 && !slices.Contains(r.Clusters, c.Cluster.ID) {
		return ClusterNotRequested
	}
	shape := c.Member().Shape.Get()
	if r.ScalingGroup != "" && r.ScalingGroup != shape.ScalingGroup {
		return ScalingGroupMismatch
	}
	return shapeMismatch(r, &shape, c.Segment)
}

func shapeMismatch(r *Request, has *segment.Shape, of *segment.Segment) Reason {
	instanceType, multiplier := r.InstanceType, r.Multiplier
	if instanceType == "" && has.InstanceType != "" {
		defaults := of.Defaults.Get()
		instanceType = defaults.InstanceType
		if multiplier == 0 && instanceType != "" {
			multiplier = defaults.Multiplier
		}
	}
	if instanceType != "" && instanceType != has.InstanceType {
		return InstanceTypeMismatch
	}
	if multiplier != 0 && multiplier != has.Multiplier {
		return MultiplierMismatch
	}
	return ""
}

// callerOrder returns the cluster's position in the caller's order. Clusters that are not in it come last.
func (r *Request) callerOrder(cluster string) uint64 {
	if i := slices.Index(r.Clusters, cluster); i >= 0 {
		return uint64(min(i, maxOrder))
	}
	return uint64(min(len(r.Clusters), maxOrder))
}
