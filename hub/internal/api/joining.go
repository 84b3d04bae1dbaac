// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/validation"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/authority"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/problem"
)

// Authority is the hub's certificate authority.
type Authority interface {
	Invite(ctx context.Context, clusterID string, ttl time.Duration, scope *hubstate.Scope, by string) (*sandboxv1.Invitation, error)
	Approve(ctx context.Context, clusterID, key string, deny bool) error
	Withdraw(ctx context.Context, clusterID string) (open int, err error)
	DropScopes(ctx context.Context, clusterID string) error
	Waiting() []hubstate.Joiner
	Rotate(ctx context.Context, skip hubstate.RotationStep) error
	Status() *sandboxv1.PkiStatus
}

const (
	maxScope     = 256 // entries of a list
	maxScopeText = 253
)

func noAuthority() error {
	return problem.New(problem.Misconfigured, "the hub has no CA: its certificate comes from --tls-cert-file; start it with "+
		"--ca-cert-file and "+
		"--ca-key-file, or without certificate files")
}

// waiting lists the requests to join that wait for an approval.
func (c clusters) waiting(p principal.Principal) []*sandboxv1.JoinRequest {
	if c.authority == nil {
		return nil
	}
	var out []*sandboxv1.JoinRequest
	for _, j := range c.authority.Waiting() {
		if !p.SeesCluster(j.ClusterID) {
			continue
		}
		out = append(out, &sandboxv1.JoinRequest{
			ClusterId: j.ClusterID, Uid: j.UID, KeyHash: j.Key, Remote: j.Remote, Since: timestamppb.New(j.Since),
		})
	}
	return out
}

// InviteCluster implements sandboxv1.ClustersServer.
func (c clusters) InviteCluster(ctx context.Context, r *sandboxv1.InviteClusterRequest) (*sandboxv1.Invitation, error) {
	if c.authority == nil {
		return nil, noAuthority()
	}
	if !link.ValidClusterID(r.GetId()) {
		return nil, problem.InvalidField("id", r.GetId(), "a lower-case DNS label of at most 30 characters that begins with a letter")
	}
	ttl := authority.DefaultTTL
	if r.GetTtl() != nil {
		ttl = r.GetTtl().AsDuration()
	}
	if ttl < time.Second || ttl > authority.MaxTTL {
		return nil, problem.InvalidField("ttl", ttl.String(), "1s to "+authority.MaxTTL.String())
	}
	scope, err := scopeOf(r.GetScope())
	if err != nil {
		return nil, err
	}
	if r.GetScope() == nil {
		scope = nil
	}
	invitation, err := c.authority.Invite(ctx, r.GetId(), ttl, scope, principal.From(ctx).Name)
	if errors.Is(err, authority.ErrInvitations) {
		return nil, problem.New(problem.RateLimited, "%s: wait until some have expired", err.Error()).WithRetryAfter(time.Minute)
	}
	return invitation, registryFailed(err)
}

// ApproveCluster implements sandboxv1.ClustersServer.
func (c clusters) ApproveCluster(ctx context.Context, r *sandboxv1.ApproveClusterRequest) (*sandboxv1.Cluster, error) {
	if c.authority == nil {
		return nil, noAuthority()
	}
	err := c.authority.Approve(ctx, r.GetId(), r.GetKeyHash(), r.GetDeny())
	switch {
	case errors.Is(err, authority.ErrNotWaiting):
		var ids []string
		for _, j := range c.waiting(principal.From(ctx)) {
			ids = append(ids, j.GetClusterId())
		}
		slices.Sort(ids)
		there := "none waits"
		if len(ids) > 0 {
			there = "there wait: " + strings.Join(slices.Compact(ids), ", ")
		}
		return nil, problem.New(problem.NotFound, "no request of cluster %q waits for an approval; %s", r.GetId(), there)
	case errors.Is(err, authority.ErrSeveral):
		return nil, problem.InvalidField("keyHash", r.GetKeyHash(), "that of the request, because several wait under this name")
	case err != nil:
		return nil, registryFailed(err)
	}
	if cluster := c.fleet.Cluster(r.GetId()); cluster != nil {
		return cluster, nil
	}
	message := "approved, and has not joined yet"
	if r.GetDeny() {
		message = "its request was refused"
	}
	return &sandboxv1.Cluster{Id: r.GetId(), State: sandboxv1.ClusterState_UNREACHABLE, Message: message}, nil
}

// withdraw withdraws the invitations of a cluster, if the hub issues any, and returns how many were open.
func (c clusters) withdraw(ctx context.Context, id string) (open int, err error) {
	if c.authority == nil {
		return 0, nil
	}
	open, err = c.authority.Withdraw(ctx, id)
	return open, registryFailed(err)
}

// RevokeCluster implements sandboxv1.ClustersServer.
func (c clusters) RevokeCluster(ctx context.Context, r *sandboxv1.RevokeClusterRequest) (*sandboxv1.Cluster, error) {
	// First; because a cluster with an invitation returns with a new key.
	open, err := c.withdraw(ctx, r.GetId())
	if err != nil {
		return nil, err
	}
	cluster, err := c.fleet.Revoke(ctx, r.GetId())
	if errors.Is(err, fleet.ErrNoCluster) && open > 0 {
		return &sandboxv1.Cluster{Id: r.GetId(), State: sandboxv1.ClusterState_UNREACHABLE,
			Message: "its invitations were withdrawn; it has not joined"}, nil
	}
	if err == nil && cluster == nil {
		return &sandboxv1.Cluster{Id: r.GetId(), State: sandboxv1.ClusterState_UNREACHABLE, Revoked: true,
			Message: "its certificates were revoked; it has not attached"}, nil
	}
	return cluster, c.explain(ctx, r.GetId(), err)
}

// UpdateCluster implements sandboxv1.ClustersServer.
func (c clusters) UpdateCluster(ctx context.Context, r *sandboxv1.UpdateClusterRequest) (*sandboxv1.Cluster, error) {
	if r.GetScope() == nil {
		return c.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: r.GetId()})
	}
	scope, err := scopeOf(r.GetScope())
	if err != nil {
		return nil, err
	}
	cluster, err := c.fleet.SetScope(ctx, r.GetId(), scope)
	if err != nil || c.authority == nil {
		return cluster, c.explain(ctx, r.GetId(), err)
	}
	// Open invitations stay: a cluster that was revoked and invited again must still use its own. They no longer set its scope.
	if err := c.authority.DropScopes(ctx, r.GetId()); err != nil {
		return cluster, registryFailed(err)
	}
	// The scope is set again, because an invitation may have been used between the two. Dropping first would leave an invitation without a
	// scope if the record cannot be written.
	cluster, err = c.fleet.SetScope(ctx, r.GetId(), scope)
	return cluster, c.explain(ctx, r.GetId(), err)
}

// scopeOf validates and converts a scope. It returns nil for a scope of everything.
func scopeOf(s *sandboxv1.ClusterScope) (*hubstate.Scope, error) {
	out := &hubstate.Scope{}
	for _, list := range []struct {
		field string
		from  []string
		to    *[]string
		valid string
		check func(string) bool
	}{
		{"scope.namespaces", s.GetNamespaces(), &out.Namespaces, "names of namespaces", isName},
		{"scope.teams", s.GetTeams(), &out.Teams, "names of at most 253 characters", func(v string) bool {
			return v != "" && len(v) <= maxScopeText
		}},
		{"scope.envs", s.GetEnvs(), &out.Envs, "NAMESPACE/NAME", func(v string) bool {
			namespace, name, ok := strings.Cut(v, "/")
			return ok && isName(namespace) && len(validation.IsDNS1123Subdomain(name)) == 0
		}},
	} {
		if len(list.from) > maxScope {
			return nil, problem.InvalidField(list.field, fmt.Sprintf("%d entries", len(list.from)), fmt.Sprintf("at most %d", maxScope))
		}
		for _, v := range list.from {
			if !list.check(v) {
				return nil, problem.InvalidField(list.field, v, list.valid)
			}
		}
		*list.to = slices.Compact(slices.Sorted(slices.Values(list.from)))
	}
	if len(out.Namespaces)+len(out.Teams)+len(out.Envs) == 0 {
		return nil, nil // everything
	}
	return out, nil
}

func isName(v string) bool { return len(validation.IsDNS1123Label(v)) == 0 }

func registryFailed(err error) error {
	if err == nil {
		return nil
	}
	return problem.New(problem.Unavailable, "the hub's registry failed: %w", err).WithRetryAfter(2 * time.Second)
}

// authorities implements the service Pki.
type authorities struct {
	sandboxv1.UnimplementedPkiServer
	authority Authority // nil: there is none
}

// GetPki implements sandboxv1.PkiServer.
func (a authorities) GetPki(context.Context, *sandboxv1.GetPkiRequest) (*sandboxv1.PkiStatus, error) {
	if a.authority == nil {
		return &sandboxv1.PkiStatus{Step: sandboxv1.RotationStep_STABLE}, nil
	}
	return a.authority.Status(), nil
}

// RotateCa implements sandboxv1.PkiServer.
func (a authorities) RotateCa(ctx context.Context, r *sandboxv1.RotateCaRequest) (*sandboxv1.PkiStatus, error) {
	if a.authority == nil {
		return nil, noAuthority()
	}
	skip, err := skipped(r)
	if err != nil {
		return nil, err
	}
	err = a.authority.Rotate(ctx, skip)
	status := a.authority.Status()
	switch {
	case errors.Is(err, authority.ErrGiven):
		return nil, problem.New(problem.Misconfigured, "%w", err)
	case errors.Is(err, authority.ErrOtherStep):
		return nil, problem.InvalidField("step", r.GetStep().String(), "the step at which the rotation is, now "+status.GetStep().String())
	case err != nil:
		return nil, registryFailed(err)
	}
	return status, nil
}

// skipped returns the step that a call names. The step prevents that a late or repeated call skips the next one.
func skipped(r *sandboxv1.RotateCaRequest) (hubstate.RotationStep, error) {
	step, names := map[sandboxv1.RotationStep]hubstate.RotationStep{
		sandboxv1.RotationStep_DISTRIBUTING: hubstate.Distributing, sandboxv1.RotationStep_RENEWING: hubstate.Renewing,
		sandboxv1.RotationStep_DROPPING: hubstate.Dropping,
	}[r.GetStep()]
	switch {
	case !r.GetSkipWaiting() && r.GetStep() != sandboxv1.RotationStep_ROTATION_STEP_UNSPECIFIED:
		return "", problem.InvalidField("step", r.GetStep().String(), "none without skip_waiting")
	case r.GetSkipWaiting() && !names:
		return "", problem.InvalidField("step", r.GetStep().String(), "DISTRIBUTING, RENEWING or DROPPING: the step that waits no more")
	}
	return step, nil
}
