// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/rollout"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/validate"
)

// maxRefreshed bounds the members and clusters in one refresh.
const maxRefreshed = 1024

// named bounds the clusters or members in an error.
const named = 20

// RefreshEnv makes each cluster replace its members of an Env. A cluster that does not respond is named, and delays no other (I7).
// Repeating the call is safe.
func (s *Service) RefreshEnv(ctx context.Context, in *sandboxv1.RefreshEnvRequest) (*sandboxv1.RefreshEnvResponse, error) {
	if err := checkRefresh(in); err != nil {
		return nil, err
	}
	p := principal.From(ctx)
	if err := p.CheckEnv(in.GetNamespace(), in.GetName()); err != nil {
		return nil, err
	}
	view := s.fleet.View(segment.Key{Namespace: in.GetNamespace(), Name: in.GetName()})
	if view == nil {
		return nil, s.fleet.UnknownEnv(in.GetNamespace(), in.GetName(), p)
	}
	there := membersByCluster(view)
	all := slices.Collect(maps.Keys(there))
	maps.DeleteFunc(there, func(id string, _ []string) bool { return !p.SeesPart(in.GetNamespace(), in.GetName(), id) })
	if len(there) == 0 {
		if err := p.CheckParts(in.GetNamespace(), in.GetName(), all); err != nil {
			return nil, err
		}
	}
	asks, err := splitRefresh(in, there)
	if err != nil {
		return nil, err
	}
	parts := make([]*sandboxv1.RefreshEnvResponse, len(asks))
	var asked sync.WaitGroup
	for i, ask := range asks {
		asked.Go(func() { parts[i] = s.refreshAt(ctx, ask) })
	}
	asked.Wait()
	out := &sandboxv1.RefreshEnvResponse{}
	for _, part := range parts {
		out.Members = append(out.Members, part.GetMembers()...)
		out.Failures = append(out.Failures, part.GetFailures()...)
	}
	return out, nil
}

func checkRefresh(in *sandboxv1.RefreshEnvRequest) error {
	var f validate.Faults
	f.Namespace(in.GetNamespace())
	f.Check(validate.IsName(in.GetName()), "name", validate.Clip(in.GetName()), "the name of an Env")
	f.Check(len(in.GetMembers()) <= maxRefreshed, "members", "too many", "at most 1024 names")
	f.Check(len(in.GetClusters()) <= maxRefreshed, "clusters", "too many", "at most 1024 names")
	if err := f.Err(); err != nil {
		return err
	}
	_, err := rollout.Parse(in.GetMaxUnavailable())
	return err
}

// membersByCluster returns the reported members of an Env by cluster, in order.
func membersByCluster(view *router.View) map[string][]string {
	out := map[string][]string{}
	for i := range view.Len() {
		candidate := view.Candidate(i)
		out[candidate.Cluster.ID] = append(out[candidate.Cluster.ID], candidate.Member().Name)
	}
	return out
}

// clusterRefresh is the request to one cluster.
type clusterRefresh struct {
	cluster string
	request *sandboxv1.RefreshEnvRequest
}

// splitRefresh divides a request among the clusters that have the named members, in order. A name that no cluster has is an error before
// any cluster is asked.
func splitRefresh(in *sandboxv1.RefreshEnvRequest, there map[string][]string) ([]clusterRefresh, error) {
	clusters := slices.Sorted(maps.Keys(there))
	if wanted := in.GetClusters(); len(wanted) > 0 {
		for _, id := range wanted {
			if _, ok := there[id]; !ok {
				return nil, problem.New(problem.NotFound, "Env %s/%s has no members in cluster %q; there are: %s",
					in.GetNamespace(), in.GetName(), validate.Clip(id), strings.Join(clusters[:min(len(clusters), named)], ", "))
			}
		}
		clusters = slices.Compact(slices.Sorted(slices.Values(wanted)))
	}
	missing := map[string]bool{}
	for _, name := range in.GetMembers() {
		missing[name] = true
	}
	var out []clusterRefresh
	var all []string
	for _, id := range clusters {
		request := proto.CloneOf(in)
		request.Clusters = []string{id}
		if len(in.GetMembers()) > 0 {
			request.Members = slices.DeleteFunc(slices.Clone(there[id]), func(name string) bool { return !slices.Contains(in.GetMembers(), name) })
			if len(request.GetMembers()) == 0 {
				all = append(all, there[id]...)
				continue
			}
		}
		for _, name := range request.GetMembers() {
			delete(missing, name)
		}
		all = append(all, there[id]...)
		out = append(out, clusterRefresh{id, request})
	}
	if len(missing) == 0 {
		return out, nil
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return nil, problem.New(problem.NotFound, "Env %s/%s has no member %q there; it has: %s",
		in.GetNamespace(), in.GetName(), validate.Clip(slices.Sorted(maps.Keys(missing))[0]), strings.Join(all[:min(len(all), named)], ", "))
}

func (s *Service) refreshAt(ctx context.Context, ask clusterRefresh) *sandboxv1.RefreshEnvResponse {
	answer, err := s.workers.Call(ctx, ask.cluster, &federationv1.Dispatch{Call: &federationv1.Dispatch_Refresh{Refresh: ask.request}})
	if err != nil {
		why := problem.FromError(err)
		return &sandboxv1.RefreshEnvResponse{Failures: []*sandboxv1.RefreshFailure{
			{ClusterId: ask.cluster, Reason: string(why.Reason), Message: why.Message},
		}}
	}
	members := answer.GetRefreshed().GetMembers()
	for _, m := range members {
		m.ClusterId = ask.cluster // from its certificate, not from its response (I12)
	}
	return &sandboxv1.RefreshEnvResponse{Members: members}
}
