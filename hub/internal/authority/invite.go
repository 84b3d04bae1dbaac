// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
)

const (
	// DefaultTTL is the default validity of an invitation.
	DefaultTTL = time.Hour
	// MaxTTL is the longest validity of an invitation.
	MaxTTL = 7 * 24 * time.Hour
	// MaxInvitations bounds the invitations that have not expired.
	MaxInvitations = 256
)

// ErrInvitations reports that there are too many invitations.
var ErrInvitations = errors.New("there are too many invitations that have not expired")

// Invite creates an invitation and returns it with its token.
func (a *Authority) Invite(ctx context.Context, clusterID string, ttl time.Duration, scope *hubstate.Scope, by string) (
	*sandboxv1.Invitation, error,
) {
	if err := a.keep(ctx); err != nil {
		return nil, err
	}
	hash, err := a.anchor()
	if err != nil {
		return nil, err
	}
	t := link.NewInvitation(hash, random(idBytes), random(secretBytes))
	now := a.opts.Clock.Now().UTC()
	made := hubstate.Invitation{
		ID: t.ID, ClusterID: clusterID, Secret: hashOf(t.Secret()), Created: now, Expires: now.Add(ttl), CreatedBy: by, Scope: scope,
	}
	err = a.update(ctx, func(s *hubstate.Authority) error {
		if len(s.Invitations) >= MaxInvitations {
			return ErrInvitations
		}
		s.Invitations = append(s.Invitations, made)
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.opts.Log.Info("A cluster was invited", "cluster", clusterID, "invitation", t.ID, "expires", made.Expires, "by", by)
	out := shown(made)
	out.Token, out.CaHash, out.Hub = t.Token(), hash, a.opts.Address
	return out, nil
}

// Withdraw removes the invitations of a cluster and its requests that wait for an approval. It returns how many invitations were unused.
func (a *Authority) Withdraw(ctx context.Context, clusterID string) (open int, err error) {
	err = a.update(ctx, func(s *hubstate.Authority) error {
		open = 0
		has := len(s.Invitations)
		s.Invitations = slices.DeleteFunc(s.Invitations, func(i hubstate.Invitation) bool {
			if i.ClusterID == clusterID && i.UsedAt.IsZero() {
				open++
			}
			return i.ClusterID == clusterID
		})
		if len(s.Invitations) == has {
			return errUnchanged
		}
		s.Waiting = slices.DeleteFunc(s.Waiting, func(j hubstate.Joiner) bool { return j.ClusterID == clusterID })
		return nil
	})
	if err == nil && open > 0 {
		a.opts.Log.Info("Invitations of a cluster were withdrawn", "cluster", clusterID, "invitations", open)
	}
	return open, err
}

// DropScopes removes the scopes from the invitations of a cluster; because an operator has set another scope since they were created.
func (a *Authority) DropScopes(ctx context.Context, clusterID string) error {
	return a.dropScopes(ctx, func(i hubstate.Invitation) bool { return i.ClusterID == clusterID })
}

// dropScopes removes the scopes from some invitations. It is also used once a cluster has got the scope of its invitation: a repeated use
// would otherwise revert a later change by an operator.
func (a *Authority) dropScopes(ctx context.Context, of func(hubstate.Invitation) bool) error {
	return a.update(ctx, func(s *hubstate.Authority) error {
		dropped := false
		for at, i := range s.Invitations {
			if i.Scope != nil && of(i) {
				s.Invitations[at].Scope, dropped = nil, true
			}
		}
		if !dropped {
			return errUnchanged
		}
		return nil
	})
}

func shown(i hubstate.Invitation) *sandboxv1.Invitation {
	out := &sandboxv1.Invitation{Id: i.ID, ClusterId: i.ClusterID, Expires: timestamppb.New(i.Expires), CreatedBy: i.CreatedBy}
	if !i.UsedAt.IsZero() {
		out.UsedAt = timestamppb.New(i.UsedAt)
	}
	return out
}
