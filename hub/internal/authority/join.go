// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

const (
	maxWaiting = 256
	// askAgain is the delay after which a cluster that waits for an approval asks again.
	askAgain = 5 * time.Second
	maxText  = 128
)

// errToken is the error for every refusal of a token. It does not reveal whether there is such an invitation.
var errToken = status.Error(codes.PermissionDenied,
	"the invitation is not valid: there is none, it has expired, it was used, or it is for another cluster; `atollctl cluster invite` "+
		"makes one")

var errBusy = status.Error(codes.Unavailable, "the hub cannot record that the cluster joins, try again later")

// Join issues the first certificate of a cluster that has an invitation, or holds the request until it is approved.
func (a *Authority) Join(ctx context.Context, remote string, r *federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
	response, err := a.join(ctx, remote, r)
	outcome := issued
	switch {
	case status.Code(err) == codes.Unavailable:
		outcome = failed
	case err != nil:
		outcome = refused
	case response.GetCertificate() == nil:
		outcome = waits
	}
	a.metrics.joins.WithLabelValues(outcome).Inc()
	named := r.GetClusterId()
	if !link.ValidClusterID(named) {
		named = "" // do not log text of an unauthenticated caller
	}
	if err != nil {
		a.opts.Log.Info("A request to join was refused", "cluster", named, "from", remote, "reason", err.Error())
	} else {
		a.opts.Log.Info("A cluster asks to join", "cluster", named, "from", remote, "outcome", outcome)
	}
	return response, err
}

func (a *Authority) join(ctx context.Context, remote string, r *federationv1.JoinRequest) (*federationv1.JoinResponse, error) {
	t, malformed := link.ParseInvitation(r.GetToken())
	if err := a.refresh(ctx, t.ID); err != nil {
		return nil, errBusy
	}
	asked := a.invited(t)
	if !is(t.Secret(), asked.Secret) || malformed != nil || asked.ClusterID != r.GetClusterId() || !a.opts.Clock.Now().Before(asked.Expires) {
		return nil, errToken
	}
	key, err := pki.CheckRequest(r.GetCsr(), r.GetClusterId())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if uid := r.GetClusterUid(); uid == "" || len(uid) > maxText {
		return nil, status.Errorf(codes.InvalidArgument, "cluster_uid: %d bytes are not valid, want the uid of the namespace kube-system",
			len(uid))
	}
	hash, err := pki.KeyHash(key)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	granted, err := a.use(ctx, t, joiner(r, hash, remote))
	switch {
	case errors.Is(err, errUsed):
		return nil, errToken
	case errors.Is(err, errFull):
		return nil, status.Error(codes.ResourceExhausted, "too many clusters wait for an approval")
	case err != nil:
		a.opts.Log.Error(err, "Recording that a cluster joins", "cluster", r.GetClusterId())
		return nil, errBusy
	case !granted:
		return &federationv1.JoinResponse{RetryAfter: durationpb.New(askAgain)}, nil
	}
	var scope *hubstate.Scope
	certificate, err := a.issue(ctx, key, fleet.Admission{
		ClusterID: r.GetClusterId(), UID: r.GetClusterUid(), Key: hash, Invited: true,
		Scope: func(ctx context.Context) (_ *hubstate.Scope, err error) {
			scope, err = a.scopeOf(ctx, t.ID)
			return scope, err
		},
	})
	if err != nil {
		return nil, refusal(err)
	}
	if scope != nil {
		if err := a.dropScopes(ctx, func(i hubstate.Invitation) bool { return i.ID == t.ID }); err != nil {
			a.opts.Log.Error(err, "Recording that a cluster has the scope of its invitation", "cluster", r.GetClusterId())
			return nil, errBusy
		}
	}
	return &federationv1.JoinResponse{Certificate: certificate}, nil
}

func joiner(r *federationv1.JoinRequest, key, remote string) hubstate.Joiner {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		remote = host
	}
	return hubstate.Joiner{ClusterID: r.GetClusterId(), UID: r.GetClusterUid(), Key: key, Remote: remote}
}

// refresh reads the state again if this replica does not know an invitation; because another replica may just have created it.
func (a *Authority) refresh(ctx context.Context, id string) error {
	a.mu.Lock()
	known := invitation(&a.state, id) >= 0
	a.mu.Unlock()
	if known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, revision, err := hubstate.LoadAuthority(ctx, a.opts.Store)
	if err != nil {
		return err
	}
	return a.take(state, revision)
}

// invited returns the invitation that a token names, or the zero value if there is none.
func (a *Authority) invited(t link.Invitation) hubstate.Invitation {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := invitation(&a.state, t.ID); at >= 0 {
		return a.state.Invitations[at]
	}
	return hubstate.Invitation{}
}

var (
	errUsed = errors.New("the invitation was used by another cluster or key, or is gone")
	errFull = errors.New("too many requests wait")
)

// scopeOf returns the scope that an invitation has in the store, or errUsed if it was withdrawn.
func (a *Authority) scopeOf(ctx context.Context, id string) (*hubstate.Scope, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, _, err := hubstate.LoadAuthority(ctx, a.opts.Store)
	if err != nil {
		return nil, fmt.Errorf("reading the invitation: %w", err)
	}
	at := invitation(&state, id)
	if at < 0 {
		return nil, errUsed
	}
	return state.Invitations[at].Scope, nil
}

// use records which cluster, with which key, has used an invitation. granted is true if the cluster may join.
func (a *Authority) use(ctx context.Context, t link.Invitation, by hubstate.Joiner) (granted bool, err error) {
	err = a.update(ctx, func(s *hubstate.Authority) error {
		at := invitation(s, t.ID)
		if at < 0 {
			return errUsed
		}
		i := &s.Invitations[at]
		if !i.UsedAt.IsZero() {
			if i.UID != by.UID || i.Key != by.Key {
				return errUsed
			}
			granted = i.Granted
			return errUnchanged
		}
		i.UsedAt, i.UID, i.Key, i.Granted = a.opts.Clock.Now().UTC(), by.UID, by.Key, !a.opts.Manual
		if granted = i.Granted; !granted {
			if len(s.Waiting) >= maxWaiting {
				return errFull
			}
			by.Invitation, by.Since = t.ID, i.UsedAt
			s.Waiting = append(s.Waiting, by)
		}
		return nil
	})
	return granted && err == nil, err
}

// issue signs a certificate after the key is in the cluster's record, so that a revocation of the cluster covers it.
func (a *Authority) issue(ctx context.Context, key crypto.PublicKey, to fleet.Admission) (*federationv1.Certificate, error) {
	if err := a.keep(ctx); err != nil {
		return nil, err
	}
	if err := a.fleet.Admit(ctx, to); err != nil {
		return nil, err
	}
	if to.Scope != nil {
		// An operator may have withdrawn the invitation, and then found no key to revoke.
		if _, err := to.Scope(ctx); err != nil {
			return nil, err
		}
	}
	v, now := a.now()
	chain, err := v.signer.SignCluster(to.ClusterID, key, a.opts.Lifetime, now)
	if err != nil {
		return nil, err
	}
	return &federationv1.Certificate{Chain: chain, Trust: v.trust.Proto()}, nil
}

// Proto returns the message to a cluster.
func (t Trust) Proto() *federationv1.Trust {
	return &federationv1.Trust{Bundle: t.Bundle, Hash: t.Hash}
}

// refusal returns the gRPC error for a certificate that was not issued.
func refusal(err error) error {
	switch {
	case errors.Is(err, errUsed):
		return errToken
	case errors.Is(err, fleet.ErrOtherCluster), errors.Is(err, fleet.ErrRevokedKey):
		return status.Error(codes.FailedPrecondition, err.Error())
	default:
		return status.Error(codes.Unavailable, "the hub cannot issue a certificate: "+err.Error())
	}
}

// Renew issues another certificate for an attached cluster. The certificate of its stream names the cluster (I12).
func (a *Authority) Renew(ctx context.Context, by fleet.Peer, uid string, csr []byte) *federationv1.Certificate {
	certificate, err := a.renew(ctx, by, uid, csr)
	if err != nil {
		a.metrics.renewals.WithLabelValues(refused).Inc()
		a.opts.Log.Info("A cluster's certificate was not renewed", "cluster", by.ClusterID, "reason", err.Error())
		return &federationv1.Certificate{Error: err.Error()}
	}
	a.metrics.renewals.WithLabelValues(issued).Inc()
	a.opts.Log.Info("A cluster's certificate was renewed", "cluster", by.ClusterID)
	return certificate
}

func (a *Authority) renew(ctx context.Context, by fleet.Peer, uid string, csr []byte) (*federationv1.Certificate, error) {
	giveBack, err := a.mayRenew(by.ClusterID)
	if err != nil {
		return nil, err
	}
	certificate, err := a.renewed(ctx, by, uid, csr)
	if err != nil {
		giveBack()
	}
	return certificate, err
}

func (a *Authority) renewed(ctx context.Context, by fleet.Peer, uid string, csr []byte) (*federationv1.Certificate, error) {
	key, err := pki.CheckRequest(csr, by.ClusterID)
	if err != nil {
		return nil, err
	}
	hash, err := pki.KeyHash(key)
	if err != nil {
		return nil, err
	}
	return a.issue(ctx, key, fleet.Admission{ClusterID: by.ClusterID, UID: uid, Key: hash, By: by})
}

const (
	renewBurst = 4
	// A cluster may send asksAtOnce requests at once, then one a second, whether it gets a certificate or not; because each request costs a
	// signature.
	asksAtOnce    = 8
	asksPerSecond = 1
	maxPaced      = 4096
)

// paced limits the rate of one cluster's requests and certificates.
type paced struct {
	asks, gets *rate.Limiter
}

// Pause returns the interval at which a cluster gets further certificates, after renewBurst at once. It bounds the keys of certificates
// that have not expired (hubstate.MaxKeys).
func (a *Authority) Pause() time.Duration { return a.opts.Lifetime / 10 }

// mayRenew charges a cluster for a certificate, or returns why it gets none now. giveBack reverts the charge if no certificate was issued.
func (a *Authority) mayRenew(clusterID string) (giveBack func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pace[clusterID]
	if p == nil {
		if len(a.pace) >= maxPaced {
			clear(a.pace)
		}
		p = &paced{rate.NewLimiter(asksPerSecond, asksAtOnce), rate.NewLimiter(rate.Every(a.Pause()), renewBurst)}
		a.pace[clusterID] = p
	}
	now := a.opts.Clock.Now()
	if !p.asks.AllowN(now, 1) {
		return nil, errors.New("the cluster has asked for certificates too often: want at most one request a second")
	}
	one := p.gets.ReserveN(now, 1)
	giveBack = func() { one.CancelAt(now) } // a later time would not revert it
	if one.DelayFrom(now) > 0 {
		giveBack()
		return nil, fmt.Errorf("the cluster has got certificates too often: %d at once, then one in %s", renewBurst, a.Pause())
	}
	return giveBack, nil
}

// Waiting lists the clusters that wait for an approval.
func (a *Authority) Waiting() []hubstate.Joiner {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.state.Clone()
	sweep(&s, a.opts.Clock.Now())
	return s.Waiting
}

// ErrNotWaiting reports that no such request waits.
var ErrNotWaiting = errors.New("no such request waits for an approval")

// ErrSeveral reports that the key is needed to select one of several requests.
var ErrSeveral = errors.New("several clusters wait under this name")

// Approve approves or denies a waiting cluster. An empty key selects the only request of the cluster.
func (a *Authority) Approve(ctx context.Context, clusterID, key string, deny bool) error {
	err := a.update(ctx, func(s *hubstate.Authority) error {
		at := -1
		for i, j := range s.Waiting {
			if j.ClusterID != clusterID || key != "" && j.Key != key {
				continue
			}
			if at >= 0 {
				return ErrSeveral
			}
			at = i
		}
		if at < 0 {
			return ErrNotWaiting
		}
		of := invitation(s, s.Waiting[at].Invitation)
		s.Waiting = slices.Delete(s.Waiting, at, at+1)
		if deny {
			s.Invitations = slices.Delete(s.Invitations, of, of+1)
		} else {
			s.Invitations[of].Granted = true
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("approving cluster %s: %w", clusterID, err)
	}
	a.opts.Log.Info("A request to join was decided", "cluster", clusterID, "approved", !deny)
	return nil
}
