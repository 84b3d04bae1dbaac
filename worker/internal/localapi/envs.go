// SPDX-License-Identifier: Apache-2.0

package localapi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// view returns the router's view of the Env. It has one cluster, which is always fresh because it is this one.
func (a *API) view(seg *segment.Segment) *router.View {
	own := router.NewCluster(a.opts.ClusterID)
	candidates := make([]router.Candidate, len(seg.Members()))
	for i := range candidates {
		candidates[i] = router.Candidate{Cluster: own, Segment: seg, Index: i}
	}
	return router.NewView(candidates)
}

// segments lists this cluster's parts of the Envs of a namespace, or of all, in order.
func (a *API) segments(ctx context.Context, namespace string) ([]*segment.Segment, error) {
	all, err := a.opts.Segments.Segments(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading Envs: %w", err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(s *segment.Segment) bool {
		return namespace != "" && s.Key().Namespace != namespace
	})
	slices.SortFunc(all, func(x, y *segment.Segment) int { return x.Key().Compare(y.Key()) })
	return all, nil
}

// ListEnvs returns this cluster's parts of the Envs. The page token is the last key of the previous page.
func (a *API) ListEnvs(ctx context.Context, r *sandboxv1.ListEnvsRequest) (*sandboxv1.ListEnvsResponse, error) {
	if r.GetPageSize() < 0 {
		return nil, problem.InvalidField("pageSize", fmt.Sprint(r.GetPageSize()), "0 to 1000")
	}
	if id := r.GetClusterId(); id != "" && id != a.opts.ClusterID {
		return nil, problem.New(problem.NotFound, "no cluster %q; this worker serves %s alone", id, a.opts.ClusterID)
	}
	size := int(min(r.GetPageSize(), maxPage))
	if size == 0 {
		size = defaultPage
	}
	var after segment.Key
	after.Namespace, after.Name, _ = strings.Cut(r.GetPageToken(), "/")
	all, err := a.segments(ctx, r.GetNamespace())
	if err != nil {
		return nil, err
	}
	out := &sandboxv1.ListEnvsResponse{}
	for _, seg := range all {
		if seg.Key().Compare(after) <= 0 {
			continue
		}
		if len(out.Envs) == size {
			last := out.Envs[size-1]
			out.NextPageToken = segment.Key{Namespace: last.GetNamespace(), Name: last.GetName()}.String()
			break
		}
		out.Envs = append(out.Envs, a.show(seg))
	}
	return out, nil
}

// GetEnv returns this cluster's part of an Env.
func (a *API) GetEnv(ctx context.Context, r *sandboxv1.GetEnvRequest) (*sandboxv1.Env, error) {
	seg, err := a.segment(ctx, namespaceOf(r), r.GetName())
	if err != nil {
		return nil, err
	}
	return a.show(seg), nil
}

// ExplainEnv returns which of the Env's pools a claim would go to.
func (a *API) ExplainEnv(ctx context.Context, r *sandboxv1.ExplainEnvRequest) (*sandboxv1.Decision, error) {
	if r.GetSandboxId() != "" || r.GetClaimKey() != "" {
		return nil, problem.New(problem.Unimplemented,
			"a worker stores no past decisions; a create returns its own, and the hub stores those that it made")
	}
	seg, err := a.segment(ctx, namespaceOf(r), r.GetName())
	if err != nil {
		return nil, err
	}
	request := proto.CloneOf(r.GetRequest())
	if request == nil {
		request = &sandboxv1.CreateSandboxRequest{}
	}
	route := router.RequestOf(request)
	explained := router.Explain(&route, a.view(seg), 0)
	return explained.Proto(a.opts.Clock.Now(), len(explained.Candidates), nil), nil
}

func (a *API) show(seg *segment.Segment) *sandboxv1.Env {
	totals := seg.Totals()
	cluster := &sandboxv1.EnvCluster{ClusterId: a.opts.ClusterID, State: sandboxv1.ClusterState_FRESH, Age: durationpb.New(0),
		Fault: seg.Defaults.Get().Fault}
	for _, m := range seg.Members() {
		cluster.Members = append(cluster.Members, m.Shown())
	}
	return &sandboxv1.Env{
		Namespace: seg.Key().Namespace, Name: seg.Key().Name,
		Idle: totals.Idle, Running: totals.Running, Desired: totals.Desired, Pending: totals.Pending,
		Clusters: []*sandboxv1.EnvCluster{cluster},
	}
}
