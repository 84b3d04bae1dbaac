// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// awayAfter is how long the hub waits for a cluster without a stream.
const awayAfter = 2 * time.Minute

var (
	// ErrOtherCluster reports that the name is bound to another cluster.
	ErrOtherCluster = errors.New("the name is bound to another cluster, by the uid of its namespace kube-system")
	// ErrRevokedKey reports that certificates with the key are refused.
	ErrRevokedKey = errors.New("certificates with this key were revoked: make another key")
	// ErrRevoked: the certificate that asks for another one was revoked.
	ErrRevoked = errors.New("the certificate was revoked: the cluster comes back by an invitation")
)

// Admission is a certificate that is about to be issued.
type Admission struct {
	ClusterID string
	UID       string
	Key       string // link.PeerKey of the certificate
	By        Peer   // the certificate that asks for it; zero: an invitation does
	Invited   bool   // an operator invited the cluster, so a removed one may return; otherwise it must be registered
	// Scope returns the invitation's scope, or an error if the invitation was withdrawn. It is called for each attempt to write the record;
	// because an operator may change the invitation meanwhile. If it is nil or returns nil, the cluster keeps its scope.
	Scope func(ctx context.Context) (*hubstate.Scope, error)
}

// Admit records the key of a certificate that is about to be issued, or returns an error.
func (f *Fleet) Admit(ctx context.Context, a Admission) error {
	c := f.obtain(a.ClusterID)
	return c.change(ctx, func(r *Record) error {
		switch {
		case f.Revokes(a.Key):
			return ErrRevokedKey
		case f.Refuses(a.By): // since it has asked
			return ErrRevoked
		case r.UID != "" && r.UID != a.UID:
			return ErrOtherCluster
		case !a.Invited && r.UID == "":
			return ErrNoCluster
		}
		if a.Scope != nil {
			scope, err := a.Scope(ctx)
			if err != nil {
				return err
			}
			if scope != nil {
				r.Scope = scope
			}
		}
		if a.Invited {
			r.Invite(a.UID)
		}
		r.AddKey(a.Key)
		return nil
	})
}

// Revoke revokes all certificates of a cluster and ends its stream. The cluster stays registered. For a cluster that has a certificate and
// has not registered yet, Revoke returns no cluster.
func (f *Fleet) Revoke(ctx context.Context, id string) (*sandboxv1.Cluster, error) {
	c := f.cluster(id)
	if c == nil {
		return nil, ErrNoCluster
	}
	err := c.change(ctx, func(r *Record) error {
		keys := r.Keys
		if r.UID == "" && len(keys) == 0 {
			return ErrNoCluster
		}
		if s := c.session.Load(); s != nil && s.peer.Key != "" { // this replica does not know the key of a session at another replica
			keys = append(keys, s.peer.Key)
		}
		r.Revoke(keys)
		r.RevokeBefore(f.clock.Now()) // covers certificates whose keys the record has dropped
		r.Keys = nil
		return nil
	})
	if err != nil {
		return nil, err
	}
	f.endRevoked()
	f.log.Info("A cluster's certificates were revoked", "cluster", id)
	return c.proto(), nil
}

// SetScope sets what a cluster may serve. An empty scope means everything.
func (f *Fleet) SetScope(ctx context.Context, id string, scope *hubstate.Scope) (*sandboxv1.Cluster, error) {
	c, err := f.changeRegistered(ctx, id, func(r *Record) { r.Scope = scope })
	if err != nil {
		return nil, err
	}
	f.log.Info("What a cluster may serve has changed", "cluster", id)
	return c.proto(), nil
}

// Credential describes the CAs that a cluster trusts and the issuer of its certificate.
type Credential struct {
	ClusterID string
	Trust     string // hash of the CAs; empty: its certificate comes from files
	Issuer    string // hash of the CA
	Attached  bool   // at any replica
	Away      bool   // it has had no stream for awayAfter
}

// Credentials lists the credentials of the registered clusters, in order.
func (f *Fleet) Credentials() []Credential {
	var out []Credential
	now := f.now()
	for _, c := range f.sorted() {
		c.mu.Lock()
		uid, one := c.record.UID, Credential{ClusterID: c.ID, Trust: c.record.Trust, Issuer: c.record.Issuer}
		c.mu.Unlock()
		if uid == "" {
			continue
		}
		one.Attached = c.session.Load() != nil
		c.liveness.mu.Lock()
		one.Away = !one.Attached && now-c.liveness.lastSeen >= awayAfter
		c.liveness.mu.Unlock()
		out = append(out, one)
	}
	return out
}

// Trusted records the hash of the CAs that the stream's cluster now trusts.
func (s *Session) Trusted(hash string) {
	if len(hash) > maxHash || !s.current() {
		return
	}
	c := s.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record.Trust != hash {
		c.record.Trust, c.unsaved = hash, true
		c.fleet.soon.hurry(c)
	}
}

// Trust returns the hash of the CAs that the stream's cluster trusts.
func (s *Session) Trust() string {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	return s.cluster.record.Trust
}

// maxHash bounds the hash of a bundle of CAs.
const maxHash = 128

// UID returns the uid of the namespace kube-system of the stream's cluster.
func (s *Session) UID() string {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	return s.cluster.record.UID
}

// Peer returns the peer that opened the stream.
func (s *Session) Peer() Peer { return s.peer }

func checkTrust(hash string) error {
	if len(hash) > maxHash {
		return fmt.Errorf("trust: %d bytes are not valid, want at most %d", len(hash), maxHash)
	}
	return nil
}

func scopeProto(s *hubstate.Scope) *sandboxv1.ClusterScope {
	if s == nil {
		return nil
	}
	return &sandboxv1.ClusterScope{Namespaces: s.Namespaces, Teams: s.Teams, Envs: s.Envs}
}

// routedScope converts a scope for the router.
func routedScope(s *hubstate.Scope) *router.Scope {
	if s == nil {
		return nil
	}
	out := &router.Scope{Namespaces: map[string]struct{}{}, Teams: map[string]struct{}{}, Envs: map[segment.Key]struct{}{}}
	for _, namespace := range s.Namespaces {
		out.Namespaces[namespace] = struct{}{}
	}
	for _, team := range s.Teams {
		out.Teams[team] = struct{}{}
	}
	for _, env := range s.Envs {
		namespace, name, _ := strings.Cut(env, "/")
		out.Envs[segment.Key{Namespace: namespace, Name: name}] = struct{}{}
	}
	return out
}

// Serves reports whether a cluster's scope includes an Env, for all teams or for some.
func (f *Fleet) Serves(id string, key segment.Key) bool {
	c := f.cluster(id)
	return c == nil || c.Given(key)
}

// ServesTeam reports whether a cluster's scope includes an Env for claims of a team.
func (f *Fleet) ServesTeam(id, team string, key segment.Key) bool {
	c := f.cluster(id)
	return c == nil || c.Serves(team, key)
}
