// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/validate"
)

// listTimeout bounds how long one cluster can delay a list of all of them. A worker lists from memory, and a receipt is
// due within a second.
const listTimeout = 3 * time.Second

// List merges the sandboxes of all clusters, live or ended, ordered by id. A cluster that does not respond in time is named, and
// delays no other (I7); its live sandboxes are listed as last known, with their age.
func (s *Service) List(ctx context.Context, in *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	req, clusters, err := s.resolveList(ctx, in)
	if err != nil {
		return nil, err
	}
	pages := make([]page, len(clusters))
	var asked sync.WaitGroup
	for i, cluster := range clusters {
		asked.Go(func() { pages[i] = s.listAt(ctx, cluster, req) })
	}
	asked.Wait()
	switch err := ctx.Err(); {
	case errors.Is(err, context.Canceled):
		return nil, err
	case err != nil:
		return nil, problem.New(problem.Deadline, "the call's own deadline passed before all clusters answered")
	}
	return merge(pages, int(req.GetPageSize()), principal.From(ctx)), nil
}

func (s *Service) resolveList(ctx context.Context, in *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesRequest, []string, error) {
	p := principal.From(ctx)
	var f validate.Faults
	if in.GetNamespace() != "" {
		f.Namespace(in.GetNamespace())
	}
	f.Check(in.GetEnv() == "" || validate.IsName(in.GetEnv()), "env", validate.Clip(in.GetEnv()), "the name of an Env")
	f.Check(in.GetClusterId() == "" || validate.IsClusterID(in.GetClusterId()), "clusterId", validate.Clip(in.GetClusterId()),
		validate.ValidClusterID)
	f.Check(in.GetPool() == "" || validate.IsName(in.GetPool()), "pool", validate.Clip(in.GetPool()), "the name of a pool")
	f = append(f, serve.ListFaults(in)...)
	if token := in.GetPageToken(); token != "" {
		_, ok := validate.ClusterOf(token)
		f.Check(ok, "pageToken", validate.Clip(token), "what nextPageToken said")
	}
	if err := f.Err(); err != nil {
		return nil, nil, err
	}
	team, user, err := p.Owner(in.GetTeam(), in.GetUser())
	if err != nil {
		return nil, nil, err
	}
	namespace := in.GetNamespace()
	if namespace == "" && len(p.Namespaces) == 1 {
		namespace = p.Namespaces[0]
	}
	if namespace != "" {
		if err := p.CheckNamespace(namespace); err != nil {
			return nil, nil, err
		}
	}
	clusters := s.fleet.ClusterIDs()
	if one := in.GetClusterId(); one != "" {
		if !slices.Contains(clusters, one) {
			return nil, nil, problem.New(problem.NotFound, "no cluster %q has registered", one)
		}
		clusters = []string{one}
	}
	return &sandboxv1.ListSandboxesRequest{
		Namespace: namespace, Env: in.GetEnv(), Pool: in.GetPool(), Team: team, User: user, Phase: in.GetPhase(),
		EndedAfter: in.GetEndedAfter(), EndedBefore: in.GetEndedBefore(), StopReason: in.GetStopReason(),
		PageSize: int32(serve.PageSize(in)), PageToken: in.GetPageToken(),
	}, clusters, nil
}

// page is one cluster's part of a list.
type page struct {
	cluster   string
	sandboxes []*sandboxv1.Sandbox
	next      string // where its search stopped, if there may be more
	err       error
}

func (s *Service) listAt(ctx context.Context, cluster string, req *sandboxv1.ListSandboxesRequest) page {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	answer, err := s.workers.Call(ctx, cluster, &federationv1.Dispatch{Call: &federationv1.Dispatch_List{List: req}})
	if err != nil {
		return s.stalePage(cluster, req, err)
	}
	out := page{cluster: cluster, next: answer.GetList().GetNextPageToken()}
	if _, ok := validate.ClusterOf(out.next); out.next != "" && (!ok || out.next <= req.GetPageToken()) {
		err := problem.New(problem.Internal, "cluster %s names %q as its next page", cluster, validate.Clip(out.next))
		return page{cluster: cluster, err: err}
	}
	for _, sandbox := range answer.GetList().GetSandboxes() {
		if err := calls.Stamp(sandbox, cluster); err != nil {
			return page{cluster: cluster, err: err}
		}
		out.sandboxes = append(out.sandboxes, sandbox)
	}
	return out
}

// stalePage is the page of a cluster that does not respond, as last known. What has ended since is not known.
func (s *Service) stalePage(cluster string, req *sandboxv1.ListSandboxesRequest, err error) page {
	out := page{cluster: cluster, err: err}
	if s.known == nil || serve.WantsEnded(req) {
		return out
	}
	known := s.known.Of(cluster, func(one *sandboxv1.Sandbox) bool {
		return one.GetId() > req.GetPageToken() && serve.Listed(req, one)
	})
	if size := serve.PageSize(req); len(known) > size {
		known, out.next = known[:size], known[size-1].GetId()
	}
	for _, one := range known {
		out.sandboxes = append(out.sandboxes, one.Shown())
	}
	return out
}

// merge combines pages into one. A page holds the sandboxes of its cluster after the token, up to its own next one. The lowest of
// these bounds what all of them have searched; later sandboxes are left to the next page. What the caller may not see is dropped
// after the cut, so that the token shows how far the search has come; such a page is shorter.
func merge(pages []page, size int, p principal.Principal) *sandboxv1.ListSandboxesResponse {
	out := &sandboxv1.ListSandboxesResponse{}
	var all []*sandboxv1.Sandbox
	for _, page := range pages {
		if page.err != nil {
			out.UnreachableClusters = append(out.UnreachableClusters, page.cluster)
		}
		all = append(all, page.sandboxes...)
		if page.next != "" && (out.NextPageToken == "" || page.next < out.NextPageToken) {
			out.NextPageToken = page.next
		}
	}
	slices.Sort(out.UnreachableClusters)
	slices.SortFunc(all, func(a, b *sandboxv1.Sandbox) int { return cmp.Compare(a.GetId(), b.GetId()) })
	if next := out.NextPageToken; next != "" {
		all = slices.DeleteFunc(all, func(s *sandboxv1.Sandbox) bool { return s.GetId() > next })
	}
	if len(all) > size {
		all, out.NextPageToken = all[:size], all[size-1].GetId()
	}
	for _, sandbox := range all {
		if p.Sees(sandbox) {
			out.Sandboxes = append(out.Sandboxes, sandbox)
		}
	}
	return out
}
