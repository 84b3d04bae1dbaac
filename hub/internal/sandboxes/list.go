// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/lastknown"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/listing"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

// listTimeout bounds how long one cluster can delay a list of all clusters. A worker lists from memory, and a receipt is due within a
// second.
const listTimeout = 3 * time.Second

// List merges the sandboxes of all clusters, live or ended, in the order of the request. A cluster that does not respond in time is
// named, and delays no other (I7); its live sandboxes are listed as last known, with their age.
func (s *Service) List(ctx context.Context, in *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	req, query, err := s.resolveList(ctx, in)
	if err != nil {
		return nil, err
	}
	clusters, err := s.clustersOf(principal.From(ctx), req)
	if err != nil {
		return nil, err
	}
	pages := make([]page, len(clusters))
	var asked sync.WaitGroup
	for i, cluster := range clusters {
		asked.Go(func() { pages[i] = s.listAt(ctx, cluster, req, query) })
	}
	asked.Wait()
	switch err := ctx.Err(); {
	case errors.Is(err, context.Canceled):
		return nil, err
	case err != nil:
		return nil, problem.New(problem.Deadline, "the call's own deadline passed before all clusters responded")
	}
	out := merge(pages, query, principal.From(ctx))
	query.MaskAll(out.Sandboxes)
	out.NextPageToken = listing.Seal(in, out.GetNextPageToken())
	return out, nil
}

// resolveList returns the request for workers, restricted to what the caller may see.
func (s *Service) resolveList(
	ctx context.Context, in *sandboxv1.ListSandboxesRequest,
) (*sandboxv1.ListSandboxesRequest, *listing.Query, error) {
	p := principal.From(ctx)
	plain, f := listing.Unseal(in)
	if in.GetNamespace() != "" {
		f.Namespace(in.GetNamespace())
	}
	f.Check(in.GetEnv() == "" || validate.IsName(in.GetEnv()), "env", validate.Clip(in.GetEnv()), "the name of an Env")
	f.Check(in.GetClusterId() == "" || validate.IsClusterID(in.GetClusterId()), "clusterId", validate.Clip(in.GetClusterId()),
		validate.ValidClusterID)
	f.Check(in.GetPool() == "" || validate.IsName(in.GetPool()), "pool", validate.Clip(in.GetPool()), "the name of a pool")
	if len(f) > 0 {
		plain.PageToken = "" // it is at fault already
	}
	query, faults := listing.Parse(plain)
	f = append(f, faults...)
	slices.SortStableFunc(f, func(a, b problem.Field) int { return cmp.Compare(a.Field, b.Field) })
	if err := f.Err(); err != nil {
		return nil, nil, err
	}
	team, err := p.ListedTeam(in.GetTeam())
	if err != nil {
		return nil, nil, err
	}
	_, user, err := p.Owner(team, in.GetUser())
	if err != nil {
		return nil, nil, err
	}
	namespace := cmp.Or(in.GetNamespace(), p.Only())
	if namespace != "" {
		if err := p.CheckNamespace(namespace); err != nil {
			return nil, nil, err
		}
	}
	plain.Namespace, plain.Team, plain.User = namespace, team, user
	plain.PageSize, plain.ReadMask, plain.ResumeToken = int32(query.Size()), nil, ""
	return plain, query, nil
}

// clustersOf returns the clusters that a list asks. Those that the caller may not see are treated as missing.
func (s *Service) clustersOf(p principal.Principal, req *sandboxv1.ListSandboxesRequest) ([]string, error) {
	clusters := slices.DeleteFunc(s.fleet.ClusterIDs(), func(id string) bool { return !p.SeesCluster(id) })
	if one := req.GetClusterId(); one != "" {
		if !slices.Contains(clusters, one) {
			return nil, problem.New(problem.NotFound, "no cluster %q has registered", one)
		}
		clusters = []string{one}
	}
	return clusters, nil
}

// page is the page of one cluster.
type page struct {
	cluster   string
	sandboxes []*sandboxv1.Sandbox
	next      *listing.Position // where its search stopped, if there may be more sandboxes
	err       error
}

func (s *Service) listAt(ctx context.Context, cluster string, req *sandboxv1.ListSandboxesRequest, query *listing.Query) page {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	req = proto.CloneOf(req)
	req.ClusterId = "" // its own
	answer, err := s.workers.Call(ctx, cluster, &federationv1.Dispatch{Call: &federationv1.Dispatch_List{List: req}})
	if err != nil {
		return s.stalePage(cluster, req, query, err)
	}
	out := page{cluster: cluster}
	for _, sandbox := range answer.GetList().GetSandboxes() {
		if err := calls.Stamp(sandbox, cluster); err != nil {
			return page{cluster: cluster, err: err}
		}
		out.sandboxes = append(out.sandboxes, sandbox)
	}
	// A worker of an earlier version orders by id. Its page is an error if another order was requested.
	if out.next, err = query.Page(out.sandboxes, answer.GetList().GetNextPageToken()); err != nil {
		return page{cluster: cluster, err: problem.New(problem.Internal, "the list of cluster %s: %w", cluster, err)}
	}
	return out
}

// stalePage returns the last known page of a cluster that does not respond. It may include sandboxes that have ended since.
func (s *Service) stalePage(cluster string, req *sandboxv1.ListSandboxesRequest, query *listing.Query, err error) page {
	out := page{cluster: cluster, err: err}
	if s.known == nil || listing.WantsEnded(req) {
		return out
	}
	known := s.known.Of(cluster, func(one *sandboxv1.Sandbox) bool { return query.Includes(one) && query.Reaches(query.At(one)) })
	slices.SortFunc(known, func(a, b lastknown.Sandbox) int { return query.Compare(query.At(a.Sandbox), query.At(b.Sandbox)) })
	if size := query.Size(); len(known) > size {
		last := query.At(known[size-1].Sandbox)
		known, out.next = known[:size], &last
	}
	for _, one := range known {
		out.sandboxes = append(out.sandboxes, one.Shown())
	}
	return out
}

// merge combines pages into one. A page holds the sandboxes of its cluster from the token up to its own next position. All clusters have
// been searched up to the first of these positions; later sandboxes are left to the next page. Sandboxes that the caller may not see are
// dropped after the cut, so that the token shows how far the search has advanced; such a page is shorter. The same applies to sandboxes
// that a worker of an earlier version did not filter.
func merge(pages []page, query *listing.Query, p principal.Principal) *sandboxv1.ListSandboxesResponse {
	out := &sandboxv1.ListSandboxesResponse{}
	var all []*sandboxv1.Sandbox
	var next *listing.Position
	for _, page := range pages {
		if page.err != nil {
			out.UnreachableClusters = append(out.UnreachableClusters, page.cluster)
		}
		all = append(all, page.sandboxes...)
		if page.next != nil && (next == nil || query.Compare(*page.next, *next) < 0) {
			next = page.next
		}
	}
	slices.Sort(out.UnreachableClusters)
	slices.SortFunc(all, func(a, b *sandboxv1.Sandbox) int { return query.Compare(query.At(a), query.At(b)) })
	if next != nil {
		all = slices.DeleteFunc(all, func(s *sandboxv1.Sandbox) bool { return query.Compare(query.At(s), *next) > 0 })
	}
	if size := query.Size(); len(all) > size {
		last := query.At(all[size-1])
		all, next = all[:size], &last
	}
	for _, sandbox := range all {
		if p.Sees(sandbox) && query.Selects(sandbox) {
			out.Sandboxes = append(out.Sandboxes, sandbox)
		}
	}
	if next != nil {
		out.NextPageToken = query.Token(*next)
	}
	return out
}
