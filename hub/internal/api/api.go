// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// Claims serves the calls about claims.
type Claims interface {
	Create(context.Context, *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error)
	GetClaim(context.Context, *sandboxv1.GetClaimRequest) (*sandboxv1.Claim, error)
	CancelClaim(context.Context, *sandboxv1.CancelClaimRequest) (*sandboxv1.Claim, error)
}

// Sandboxes serves the calls about sandboxes, on their clusters.
type Sandboxes interface {
	Get(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	List(context.Context, *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error)
	Watch(ctx context.Context, r *sandboxv1.WatchSandboxesRequest, send func(*sandboxv1.SandboxEvent) error) error
	CloseWatches()
	Release(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	Update(context.Context, *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error)
	Touch(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	Pause(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	Resume(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	Explain(context.Context, *sandboxv1.ExplainEnvRequest) (*sandboxv1.Decision, error)
	RefreshEnv(context.Context, *sandboxv1.RefreshEnvRequest) (*sandboxv1.RefreshEnvResponse, error)
}

// Fleet shows clusters and Envs.
type Fleet interface {
	Clusters() []*sandboxv1.Cluster
	Cluster(id string) *sandboxv1.Cluster
	Keys(namespace string) []segment.Key
	UnknownEnv(namespace, name string) error
	Env(key segment.Key) *sandboxv1.Env
	ClusterIDs() []string
	Drain(ctx context.Context, id string) (*sandboxv1.Cluster, error)
	Undrain(ctx context.Context, id string) (*sandboxv1.Cluster, error)
	ReleaseName(ctx context.Context, id string) (*sandboxv1.Cluster, error)
	Forget(ctx context.Context, id string) (*sandboxv1.Cluster, error)
}

type sandboxes struct {
	sandboxv1.UnimplementedSandboxesServer
	claims  Claims
	service Sandboxes
}

func (s sandboxes) CreateSandbox(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.claims.Create(ctx, r)
}

func (s sandboxes) GetSandbox(ctx context.Context, r *sandboxv1.GetSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.service.Get(ctx, r.GetId())
}

func (s sandboxes) ListSandboxes(ctx context.Context, r *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	return s.service.List(ctx, r)
}

func (s sandboxes) WatchSandboxes(r *sandboxv1.WatchSandboxesRequest, stream grpc.ServerStreamingServer[sandboxv1.SandboxEvent]) error {
	return s.service.Watch(stream.Context(), r, stream.Send)
}

func (s sandboxes) ReleaseSandbox(ctx context.Context, r *sandboxv1.ReleaseSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.service.Release(ctx, r.GetId())
}

func (s sandboxes) UpdateSandbox(ctx context.Context, r *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.service.Update(ctx, r)
}

func (s sandboxes) TouchSandbox(ctx context.Context, r *sandboxv1.TouchSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.service.Touch(ctx, r.GetId())
}

func (s sandboxes) PauseSandbox(ctx context.Context, r *sandboxv1.PauseSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.service.Pause(ctx, r.GetId())
}

func (s sandboxes) ResumeSandbox(ctx context.Context, r *sandboxv1.ResumeSandboxRequest) (*sandboxv1.Sandbox, error) {
	return s.service.Resume(ctx, r.GetId())
}

type claimKeys struct {
	sandboxv1.UnimplementedClaimsServer
	claims Claims
}

func (c claimKeys) GetClaim(ctx context.Context, r *sandboxv1.GetClaimRequest) (*sandboxv1.Claim, error) {
	return c.claims.GetClaim(ctx, r)
}

func (c claimKeys) CancelClaim(ctx context.Context, r *sandboxv1.CancelClaimRequest) (*sandboxv1.Claim, error) {
	return c.claims.CancelClaim(ctx, r)
}

type clusters struct {
	sandboxv1.UnimplementedClustersServer
	fleet Fleet
}

func (c clusters) ListClusters(context.Context, *sandboxv1.ListClustersRequest) (*sandboxv1.ListClustersResponse, error) {
	return &sandboxv1.ListClustersResponse{Clusters: c.fleet.Clusters()}, nil
}

func (c clusters) GetCluster(_ context.Context, r *sandboxv1.GetClusterRequest) (*sandboxv1.Cluster, error) {
	if cluster := c.fleet.Cluster(r.GetId()); cluster != nil {
		return cluster, nil
	}
	return nil, c.missing(r.GetId())
}

func (c clusters) missing(id string) error {
	there := "none has registered"
	if ids := c.fleet.ClusterIDs(); len(ids) > 0 {
		there = "there are: " + strings.Join(ids, ", ")
	}
	return problem.New(problem.NotFound, "no cluster %q; %s", id, there)
}

func (c clusters) DrainCluster(ctx context.Context, r *sandboxv1.DrainClusterRequest) (*sandboxv1.Cluster, error) {
	cluster, err := c.fleet.Drain(ctx, r.GetId())
	return cluster, c.explain(r.GetId(), err)
}

func (c clusters) UndrainCluster(ctx context.Context, r *sandboxv1.UndrainClusterRequest) (*sandboxv1.Cluster, error) {
	undo := c.fleet.Undrain
	if r.GetSuccessor() {
		undo = c.fleet.ReleaseName
	}
	cluster, err := undo(ctx, r.GetId())
	return cluster, c.explain(r.GetId(), err)
}

func (c clusters) ForgetCluster(ctx context.Context, r *sandboxv1.ForgetClusterRequest) (*sandboxv1.Cluster, error) {
	cluster, err := c.fleet.Forget(ctx, r.GetId())
	return cluster, c.explain(r.GetId(), err)
}

// explain returns the reason why a cluster was not changed.
func (c clusters) explain(id string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fleet.ErrNoCluster):
		return c.missing(id)
	case errors.Is(err, fleet.ErrServing):
		return problem.InvalidField("id", id, "a cluster that is drained or not attached; drain it first")
	default:
		return problem.New(problem.Unavailable, "the hub's registry failed: %w", err).WithRetryAfter(2 * time.Second)
	}
}

type envs struct {
	sandboxv1.UnimplementedEnvsServer
	fleet   Fleet
	service Sandboxes
}

// ListEnvs pages by key: the token is the last key of the previous page.
func (e envs) ListEnvs(ctx context.Context, r *sandboxv1.ListEnvsRequest) (*sandboxv1.ListEnvsResponse, error) {
	p := principal.From(ctx)
	if r.GetNamespace() != "" {
		if err := p.CheckNamespace(r.GetNamespace()); err != nil {
			return nil, err
		}
	}
	if size := r.GetPageSize(); size < 0 || size > maxPage {
		return nil, problem.InvalidField("pageSize", strconv.Itoa(int(size)), "0 to 1000")
	}
	var after segment.Key
	if token := r.GetPageToken(); token != "" {
		namespace, name, ok := strings.Cut(token, "/")
		if !ok {
			return nil, problem.InvalidField("pageToken", token, "what nextPageToken said")
		}
		after = segment.Key{Namespace: namespace, Name: name}
	}
	size := int(cmp.Or(r.GetPageSize(), defaultPage))
	out := &sandboxv1.ListEnvsResponse{}
	for _, key := range e.fleet.Keys(r.GetNamespace()) {
		if key.Compare(after) <= 0 || !p.SeesNamespace(key.Namespace) {
			continue
		}
		if len(out.GetEnvs()) == size {
			last := out.GetEnvs()[size-1]
			out.NextPageToken = last.GetNamespace() + "/" + last.GetName()
			break
		}
		if env := e.fleet.Env(key); env != nil {
			out.Envs = append(out.Envs, env)
		}
	}
	return out, nil
}

func (e envs) GetEnv(ctx context.Context, r *sandboxv1.GetEnvRequest) (*sandboxv1.Env, error) {
	if err := principal.From(ctx).CheckNamespace(r.GetNamespace()); err != nil {
		return nil, err
	}
	if env := e.fleet.Env(segment.Key{Namespace: r.GetNamespace(), Name: r.GetName()}); env != nil {
		return env, nil
	}
	return nil, e.fleet.UnknownEnv(r.GetNamespace(), r.GetName())
}

func (e envs) ExplainEnv(ctx context.Context, r *sandboxv1.ExplainEnvRequest) (*sandboxv1.Decision, error) {
	return e.service.Explain(ctx, r)
}

func (e envs) RefreshEnv(ctx context.Context, r *sandboxv1.RefreshEnvRequest) (*sandboxv1.RefreshEnvResponse, error) {
	return e.service.RefreshEnv(ctx, r)
}

func (envs) PutEnv(context.Context, *sandboxv1.PutEnvRequest) (*sandboxv1.Env, error) {
	return nil, noCatalogue()
}

func (envs) PlanEnv(context.Context, *sandboxv1.PlanEnvRequest) (*sandboxv1.PlanEnvResponse, error) {
	return nil, noCatalogue()
}

func unbuilt(why string) error { return problem.New(problem.Unimplemented, "%s", why) }

func noCatalogue() error {
	return unbuilt("the hub has no catalogue yet; apply SandboxEnvs and SandboxTemplates in the clusters")
}
