// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// Claims implements the calls about claims.
type Claims interface {
	Create(context.Context, *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error)
	GetClaim(context.Context, *sandboxv1.GetClaimRequest) (*sandboxv1.Claim, error)
	CancelClaim(context.Context, *sandboxv1.CancelClaimRequest) (*sandboxv1.Claim, error)
}

// Sandboxes implements the calls about sandboxes, on their clusters.
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
	UnknownEnv(namespace, name string, caller fleet.Sight) error
	Env(key segment.Key) *sandboxv1.Env
	ClusterIDs() []string
	Drain(ctx context.Context, id string) (*sandboxv1.Cluster, error)
	Undrain(ctx context.Context, id string) (*sandboxv1.Cluster, error)
	ReleaseName(ctx context.Context, id string) (*sandboxv1.Cluster, error)
	Forget(ctx context.Context, id string) (*sandboxv1.Cluster, error)
	Forgotten(id, uid string) bool
	Revoke(ctx context.Context, id string) (*sandboxv1.Cluster, error)
	SetScope(ctx context.Context, id string, scope *hubstate.Scope) (*sandboxv1.Cluster, error)
}

type sandboxes struct {
	sandboxv1.UnimplementedSandboxesServer
	claims  Claims
	service Sandboxes
}

func (s sandboxes) CreateSandbox(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	p := principal.From(ctx)
	made, err := s.claims.Create(ctx, r)
	if err != nil {
		return nil, p.ShowRefusal(err)
	}
	if shown := p.ShowDecision(made.GetNamespace(), made.GetEnv(), made.GetDecision()); shown != made.GetDecision() {
		made = proto.CloneOf(made) // other callers of the claim key share it
		made.Decision = shown
	}
	return made, nil
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
	fleet     Fleet
	authority Authority  // nil: there is none
	shares    Allotments // nil: nothing is divided
}

func (c clusters) ListClusters(ctx context.Context, _ *sandboxv1.ListClustersRequest) (*sandboxv1.ListClustersResponse, error) {
	p := principal.From(ctx)
	seen := slices.DeleteFunc(c.fleet.Clusters(), func(one *sandboxv1.Cluster) bool { return !p.SeesCluster(one.GetId()) })
	return &sandboxv1.ListClustersResponse{Clusters: seen, Waiting: c.waiting(p)}, nil
}

func (c clusters) GetCluster(ctx context.Context, r *sandboxv1.GetClusterRequest) (*sandboxv1.Cluster, error) {
	p := principal.From(ctx)
	if cluster := c.fleet.Cluster(r.GetId()); cluster != nil && p.SeesCluster(r.GetId()) {
		return cluster, nil
	}
	return nil, c.missing(p, r.GetId())
}

// missing returns the error for a cluster that has not registered, or that the caller may not see.
func (c clusters) missing(p principal.Principal, id string) error {
	there := "none has registered"
	ids := slices.DeleteFunc(c.fleet.ClusterIDs(), func(one string) bool { return !p.SeesCluster(one) })
	if len(ids) > 0 {
		there = "there are: " + strings.Join(ids, ", ")
	}
	return problem.New(problem.NotFound, "no cluster %q; %s", id, there)
}

func (c clusters) DrainCluster(ctx context.Context, r *sandboxv1.DrainClusterRequest) (*sandboxv1.Cluster, error) {
	cluster, err := c.fleet.Drain(ctx, r.GetId())
	return cluster, c.explain(ctx, r.GetId(), err)
}

func (c clusters) UndrainCluster(ctx context.Context, r *sandboxv1.UndrainClusterRequest) (*sandboxv1.Cluster, error) {
	undo := c.fleet.Undrain
	if r.GetSuccessor() {
		undo = c.fleet.ReleaseName
	}
	cluster, err := undo(ctx, r.GetId())
	return cluster, c.explain(ctx, r.GetId(), err)
}

func (c clusters) ForgetCluster(ctx context.Context, r *sandboxv1.ForgetClusterRequest) (*sandboxv1.Cluster, error) {
	if r.GetReclaimRoom() && c.shares == nil {
		return nil, problem.InvalidField("reclaimRoom", "true", "false: this hub divides no maxReplicas over clusters (--allotments)")
	}
	// First; because a cluster that joins with an invitation reverts the removal.
	if _, err := c.withdraw(ctx, r.GetId()); err != nil {
		return nil, err
	}
	cluster, err := c.fleet.Forget(ctx, r.GetId())
	if !r.GetReclaimRoom() || err != nil && (!errors.Is(err, fleet.ErrNoCluster) || !c.fleet.Forgotten(r.GetId(), "")) {
		return cluster, c.explain(ctx, r.GetId(), err)
	}
	if cluster == nil { // it was forgotten before
		cluster = &sandboxv1.Cluster{Id: r.GetId(), State: sandboxv1.ClusterState_FORGOTTEN, Message: "removed from the federation"}
	}
	return cluster, c.shares.Reclaim(ctx, r.GetId())
}

// explain returns the caller's error for a cluster that was not changed.
func (c clusters) explain(ctx context.Context, id string, err error) error {
	switch {
	case errors.Is(err, fleet.ErrNoCluster):
		return c.missing(principal.From(ctx), id)
	case errors.Is(err, fleet.ErrServing):
		return problem.InvalidField("id", id,
			"a cluster that is drained or not attached; first: atollctl cluster drain "+id)
	default:
		return registryFailed(err)
	}
}

func noStore() error { return problem.New(problem.Unimplemented, "this hub keeps nothing") }
