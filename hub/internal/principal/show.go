// SPDX-License-Identifier: Apache-2.0

package principal

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// SeesPart reports whether the caller may see the part of an Env in a cluster.
func (p Principal) SeesPart(namespace, env, cluster string) bool {
	if p.narrow == nil || p.ask != nil && p.ask(namespace) {
		return true
	}
	return slices.ContainsFunc(p.narrow, func(s access.Scope) bool { return covers(&s, place{namespace, env, cluster}) })
}

// ShowEnv removes from an Env the clusters that the caller may not see, and recomputes its numbers. It modifies env.
func (p Principal) ShowEnv(env *sandboxv1.Env) *sandboxv1.Env {
	hidden := func(id string) bool { return !p.SeesPart(env.GetNamespace(), env.GetName(), id) }
	all := len(env.GetClusters())
	env.Clusters = slices.DeleteFunc(env.GetClusters(), func(c *sandboxv1.EnvCluster) bool { return hidden(c.GetClusterId()) })
	env.MissingClusters = slices.DeleteFunc(env.GetMissingClusters(), hidden)
	env.ClustersWithoutEnv = slices.DeleteFunc(env.GetClustersWithoutEnv(), hidden)
	for _, a := range env.GetAllotments() {
		a.Shares = slices.DeleteFunc(a.GetShares(), func(s *sandboxv1.AllotmentShare) bool { return hidden(s.GetClusterId()) })
	}
	if len(env.GetClusters()) == all {
		return env
	}
	env.Idle, env.Running, env.Desired, env.Pending = 0, 0, 0, 0
	for _, c := range env.GetClusters() {
		for _, m := range c.GetMembers() {
			env.Idle = segment.Sum(env.GetIdle(), m.GetIdle())
			env.Running = segment.Sum(env.GetRunning(), m.GetRunning())
			env.Desired = segment.Sum(env.GetDesired(), m.GetDesired())
			env.Pending = segment.Sum(env.GetPending(), m.GetPending())
		}
	}
	return env
}

// ShowDecision returns a decision on a claim of an Env without the candidates of clusters that the caller may not see.
func (p Principal) ShowDecision(namespace, env string, d *sandboxv1.Decision) *sandboxv1.Decision {
	hidden := func(c *sandboxv1.Candidate) bool { return !p.SeesPart(namespace, env, c.GetClusterId()) }
	if !slices.ContainsFunc(d.GetCandidates(), hidden) {
		return d
	}
	out := proto.CloneOf(d)
	out.Candidates = slices.DeleteFunc(out.GetCandidates(), hidden)
	if out.GetReason() == notRequested {
		out.Message = noneOpen // the original message names the clusters with members
	}
	return out
}

// The reason of a claim whose requested clusters have no member of its Env, and the message to a caller that may not see the others.
const (
	notRequested = string(router.ClusterNotRequested)
	noneOpen     = "no cluster that is open to you has a member of the Env"
)

// ShowRefusal returns the error of a claim without the clusters that the caller may not see.
func (p Principal) ShowRefusal(err error) error {
	if err == nil || p.narrow == nil || problem.FromError(err).Reason != problem.Misconfigured ||
		!strings.Contains(err.Error(), notRequested) || !slices.ContainsFunc(p.narrow, func(s access.Scope) bool { return len(s.Clusters) > 0 }) {
		return err
	}
	out := *problem.FromError(err)
	out.Message = notRequested + ": " + noneOpen
	return &out
}
