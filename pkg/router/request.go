// SPDX-License-Identifier: Apache-2.0

package router

import (
	"slices"

	"navix.sh/atoll/pkg/segment"
)

// MaxExcluded bounds the refused candidates that one request remembers; a claim tries fewer.
const MaxExcluded = 8

// Request is the part of a claim that decides where it may go. The zero value goes anywhere.
type Request struct {
	InstanceType    string
	Multiplier      int32
	ScalingGroup    string
	Clusters        []string // preferred, first is best
	RequireClusters bool     // makes Clusters binding
	NoQueue         bool
	Team            string   // of the caller; clusters may be given to teams
	Barred          []string // clusters that get nothing, however many candidates refuse

	// Excluded by name, not by index; because a retry uses a newer view.
	excluded  [MaxExcluded]exclusion
	nExcluded uint8
}

type exclusion struct{ cluster, member string }

// Exclude keeps the request away from a candidate that refused it. Above the bound the oldest exclusion is dropped.
func (r *Request) Exclude(cluster, member string) {
	r.excluded[r.nExcluded%MaxExcluded] = exclusion{cluster, member}
	if r.nExcluded++; r.nExcluded == 2*MaxExcluded {
		r.nExcluded = MaxExcluded
	}
}

// ExcludeCluster keeps the request away from all members of a cluster.
func (r *Request) ExcludeCluster(cluster string) { r.Exclude(cluster, "") }

// selective reports whether the request has conditions that need a check of each candidate's details.
func (r *Request) selective() bool {
	return r.InstanceType != "" || r.Multiplier != 0 || r.ScalingGroup != "" || len(r.Clusters) > 0 || len(r.Barred) > 0 || r.nExcluded > 0
}

// mismatch returns the condition of the request that the candidate does not meet.
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

// unsuited is mismatch without what the request has met so far.
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

// affinity is the cluster's place in the caller's order; clusters that are not named come last.
func (r *Request) affinity(cluster string) uint64 {
	if i := slices.Index(r.Clusters, cluster); i >= 0 {
		return uint64(min(i, maxAffinity))
	}
	return uint64(min(len(r.Clusters), maxAffinity))
}
