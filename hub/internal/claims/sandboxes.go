// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/validate"
)

// Get answers a sandbox: from the store where a terminal record is kept, else from the cluster in its id.
func (s *Service) Get(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	cluster, err := parseID(id)
	if err != nil {
		return nil, err
	}
	sandbox, err := s.ledger.endedByID(ctx, id)
	if err != nil {
		return nil, storeFailed(err)
	}
	if sandbox == nil {
		if err := s.registered(cluster, id); err != nil {
			return nil, err
		}
		if sandbox, err = s.getAt(ctx, cluster, id); err != nil {
			return nil, err
		}
	}
	if !PrincipalFrom(ctx).sees(sandbox) {
		return nil, noSandbox(id)
	}
	return sandbox, nil
}

func (s *Service) getAt(ctx context.Context, cluster, id string) (*sandboxv1.Sandbox, error) {
	return s.ask(ctx, cluster, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Get{Get: &sandboxv1.GetSandboxRequest{Id: id}},
	})
}

// ask calls a cluster for what is answered with a sandbox.
func (s *Service) ask(ctx context.Context, cluster string, d *federationv1.Dispatch) (*sandboxv1.Sandbox, error) {
	answer, err := s.call(ctx, cluster, d)
	if err != nil {
		return nil, err
	}
	return answer.GetSandbox(), stamp(answer.GetSandbox(), cluster)
}

// parseID answers the cluster that minted the id.
func parseID(id string) (string, error) {
	var f validate.Faults
	f.SandboxID(id)
	if err := f.Err(); err != nil {
		return "", err
	}
	cluster, _ := validate.ClusterOf(id)
	return cluster, nil
}

func (s *Service) registered(cluster, id string) error {
	if !slices.Contains(s.fleet.ClusterIDs(), cluster) {
		return problem.New(problem.NotFound, "no sandbox %s: no cluster %q is registered", id, cluster)
	}
	return nil
}

func noSandbox(id string) error { return problem.New(problem.NotFound, "no sandbox %s", id) }

// Release ends a sandbox. Releasing an ended one answers its record. That of a claim key is durable before it is sent, like
// a cancel: a cluster that is away ends it when it is back.
func (s *Service) Release(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	cluster, ended, err := s.find(ctx, id)
	if err != nil || ended != nil {
		return ended, err
	}
	if err := s.endByID(ctx, id); err != nil {
		return nil, err
	}
	return s.release(ctx, cluster, id)
}

// find answers the cluster of a sandbox that the caller may change, or its record if it is known to have ended.
func (s *Service) find(ctx context.Context, id string) (cluster string, ended *sandboxv1.Sandbox, err error) {
	if cluster, err = parseID(id); err != nil {
		return "", nil, err
	}
	if PrincipalFrom(ctx).restricted() {
		// Team and user of a sandbox never change, so that asking first is safe.
		if _, err := s.Get(ctx, id); err != nil {
			return "", nil, err
		}
	}
	if ended, err = s.ledger.endedByID(ctx, id); err != nil {
		return "", nil, storeFailed(err)
	}
	if ended == nil {
		err = s.registered(cluster, id)
	}
	return cluster, ended, err
}

// Update changes the timeouts of a sandbox, where it is. One that has ended answers its record.
func (s *Service) Update(ctx context.Context, r *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error) {
	if err := validate.Update(r).Err(); err != nil {
		return nil, err
	}
	return s.tell(ctx, r.GetId(), &federationv1.Dispatch{Call: &federationv1.Dispatch_Update{Update: r}})
}

// Touch records activity of a sandbox, where it is. One that has ended answers its record.
func (s *Service) Touch(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.tell(ctx, id, &federationv1.Dispatch{Call: &federationv1.Dispatch_Touch{Touch: &sandboxv1.TouchSandboxRequest{Id: id}}})
}

// Pause frees the CPU of a sandbox, where it is. One that has ended answers its record.
func (s *Service) Pause(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.tell(ctx, id, &federationv1.Dispatch{Call: &federationv1.Dispatch_Pause{Pause: &sandboxv1.PauseSandboxRequest{Id: id}}})
}

// Resume gives a paused sandbox its CPU back. One that has ended answers its record.
func (s *Service) Resume(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.tell(ctx, id, &federationv1.Dispatch{Call: &federationv1.Dispatch_Resume{Resume: &sandboxv1.ResumeSandboxRequest{Id: id}}})
}

// tell has a sandbox's cluster change it.
func (s *Service) tell(ctx context.Context, id string, d *federationv1.Dispatch) (*sandboxv1.Sandbox, error) {
	cluster, ended, err := s.find(ctx, id)
	if err != nil || ended != nil {
		return ended, err
	}
	return s.ask(ctx, cluster, d)
}

// endByID ends the claim that a sandbox was answered to, if it has a key.
func (s *Service) endByID(ctx context.Context, id string) error {
	if err := s.settleID(ctx, id); err != nil {
		return err
	}
	for {
		known, _, err := s.ledger.byID(ctx, id)
		if err != nil {
			return storeFailed(err)
		}
		if known.KeyHash == "" {
			return nil
		}
		h, err := s.ledger.load(ctx, known.KeyHash)
		if err != nil {
			return storeFailed(err)
		}
		if h.record == nil || h.record.SandboxID != id || h.record.State != stateAnswered {
			return nil
		}
		req, err := h.record.request()
		if err != nil {
			return storeFailed(err)
		}
		now := s.clock.Now()
		next := *h.record
		next.State, next.ExpireAt = stateEnded, now.Add(s.retention)
		next.Terminal = marshal(releasedEnd(req, &next, now))
		switch _, err = s.ledger.save(ctx, known.KeyHash, h, &next); {
		case err == nil:
			return nil
		case !errors.Is(err, store.ErrConflict):
			return storeFailed(err)
		}
	}
}

// release tells a cluster to end a sandbox, and remembers that it was told to if it does not confirm that.
func (s *Service) release(ctx context.Context, cluster, id string) (*sandboxv1.Sandbox, error) {
	answer, err := s.call(ctx, cluster, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Release{Release: &sandboxv1.ReleaseSandboxRequest{Id: id}},
	})
	s.endings.settle(ending{cluster: cluster, id: id}, err)
	if err != nil {
		return nil, err
	}
	return answer.GetSandbox(), stamp(answer.GetSandbox(), cluster)
}

// List merges the sandboxes of all clusters, live or ended, ordered by id. A cluster that does not answer in time is named, and
// delays nobody (I7).
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
	if err := ctx.Err(); err != nil {
		return nil, gone(ctx)
	}
	return merge(pages, int(req.GetPageSize()), PrincipalFrom(ctx)), nil
}

func (s *Service) resolveList(ctx context.Context, in *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesRequest, []string, error) {
	p := PrincipalFrom(ctx)
	var f validate.Faults
	if in.GetNamespace() != "" {
		f.Namespace(in.GetNamespace())
	}
	f.Check(in.GetEnv() == "" || validate.IsName(in.GetEnv()), "env", validate.Clip(in.GetEnv()), "the name of an Env")
	f.Check(in.GetClusterId() == "" || validate.IsClusterID(in.GetClusterId()), "clusterId", validate.Clip(in.GetClusterId()), validate.ValidClusterID)
	f.Check(in.GetPool() == "" || validate.IsName(in.GetPool()), "pool", validate.Clip(in.GetPool()), "the name of a pool")
	f = append(f, serve.ListFaults(in)...)
	if token := in.GetPageToken(); token != "" {
		_, ok := validate.ClusterOf(token)
		f.Check(ok, "pageToken", validate.Clip(token), "what nextPageToken said")
	}
	if err := f.Err(); err != nil {
		return nil, nil, err
	}
	team, err := own("team", in.GetTeam(), p.Team)
	if err != nil {
		return nil, nil, err
	}
	user, err := own("user", in.GetUser(), p.User)
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
	next      string // how far it has looked, if there may be more
	err       error
}

func (s *Service) listAt(ctx context.Context, cluster string, req *sandboxv1.ListSandboxesRequest) page {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	answer, err := s.call(ctx, cluster, &federationv1.Dispatch{Call: &federationv1.Dispatch_List{List: req}})
	if err != nil {
		return page{cluster: cluster, err: err}
	}
	out := page{cluster: cluster, next: answer.GetList().GetNextPageToken()}
	if _, ok := validate.ClusterOf(out.next); out.next != "" && (!ok || out.next <= req.GetPageToken()) {
		return page{cluster: cluster, err: problem.New(problem.Internal, "cluster %s names %q as its next page", cluster, validate.Clip(out.next))}
	}
	for _, sandbox := range answer.GetList().GetSandboxes() {
		if err := stamp(sandbox, cluster); err != nil {
			return page{cluster: cluster, err: err}
		}
		out.sandboxes = append(out.sandboxes, sandbox)
	}
	return out
}

// merge orders pages into one. A page holds the sandboxes of its cluster after the token, up to its own next one: the lowest
// of these is how far all of them have looked, and what is beyond it is left to the next page. What the caller may not see is
// dropped after the cut, so that the token says how far the search has come; such a page is shorter.
func merge(pages []page, size int, p Principal) *sandboxv1.ListSandboxesResponse {
	out := &sandboxv1.ListSandboxesResponse{}
	var all []*sandboxv1.Sandbox
	for _, page := range pages {
		if page.err != nil {
			out.UnreachableClusters = append(out.UnreachableClusters, page.cluster)
			continue
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
		if p.sees(sandbox) {
			out.Sandboxes = append(out.Sandboxes, sandbox)
		}
	}
	return out
}
