// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"slices"
	"time"

	"navix.sh/atoll/pkg/store"
)

// AuthorityKey is the registry's entry of the hub's certificate authority.
const AuthorityKey = "authority"

// RotationStep is a step of the rotation of the CA. It is stored.
type RotationStep string

// The steps, in order. After the last one the CA is stable.
const (
	Stable       RotationStep = ""
	Distributing RotationStep = "Distributing" // clusters get the new CA to trust; the old one signs
	Renewing     RotationStep = "Renewing"     // the new CA signs, and clusters get new certificates; both are trusted
	Dropping     RotationStep = "Dropping"     // clusters stop to trust the old CA
)

// Authority is the state of the hub's certificate authority. One entry holds it all, so that each change is one swap.
type Authority struct {
	Generation  uint64       `json:"generation"` // rises with each step, so that of two copies the later one is known
	CAs         []CA         `json:"cas"`        // oldest first: one, or two during a rotation
	Step        RotationStep `json:"step,omitempty"`
	Since       time.Time    `json:"since"`          // when the step began
	Skip        bool         `json:"skip,omitempty"` // the step waits for no cluster any more
	Invitations []Invitation `json:"invitations,omitempty"`
	Waiting     []Joiner     `json:"waiting,omitempty"` // for an approval
}

// CA is a certificate authority.
type CA struct {
	Cert    []byte    `json:"cert"` // PEM
	Key     []byte    `json:"key"`  // PEM
	Created time.Time `json:"created"`
	Given   bool      `json:"given,omitempty"` // by the operator
}

// Scope is what a cluster may serve. An empty list is everything.
type Scope struct {
	Namespaces []string `json:"namespaces,omitempty"`
	Teams      []string `json:"teams,omitempty"`
	Envs       []string `json:"envs,omitempty"` // NAMESPACE/NAME
}

// Invitation lets one cluster join, once.
type Invitation struct {
	ID        string    `json:"id"`
	ClusterID string    `json:"clusterID"`
	Secret    []byte    `json:"secret"` // SHA-256 of it
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires"`
	CreatedBy string    `json:"createdBy,omitempty"`
	Scope     *Scope    `json:"scope,omitempty"` // nil: as it is, or the cluster has got it
	// Of the cluster that used it; only that one may use it again, because it may have lost the response.
	UsedAt time.Time `json:"usedAt,omitzero"`
	UID    string    `json:"uid,omitempty"`
	Key    string    `json:"key,omitempty"` // link.PeerKey
	// Granted: the cluster was let in, so that its certificate may be issued.
	Granted bool `json:"granted,omitempty"`
}

// Joiner waits for an approval.
type Joiner struct {
	ClusterID  string    `json:"clusterID"`
	UID        string    `json:"uid"`
	Key        string    `json:"key"`
	Invitation string    `json:"invitation"` // id
	Remote     string    `json:"remote"`
	Since      time.Time `json:"since"`
}

// Lasting is the part that outlives the loss of the store: the CAs. An invitation does not; because one that was used would be unused
// again.
func (a Authority) Lasting() Authority {
	a.Invitations, a.Waiting = nil, nil
	return a
}

// Clone returns a copy whose lists can be changed.
func (a Authority) Clone() Authority {
	a.CAs, a.Invitations, a.Waiting = slices.Clone(a.CAs), slices.Clone(a.Invitations), slices.Clone(a.Waiting)
	return a
}

// LaterAuthority returns the later of two states. Only that of the existing one has invitations.
func LaterAuthority(existing, other Authority) Authority {
	if other.Generation > existing.Generation || len(existing.CAs) == 0 {
		return other.Lasting()
	}
	return existing
}

// LoadAuthority reads the state with its revision; the zero value at revision 0 if there is none.
func LoadAuthority(ctx context.Context, registry store.Store) (a Authority, revision uint64, err error) {
	held, err := hold[Authority](ctx, registry, AuthorityKey)
	if held.Value != nil {
		a = *held.Value
	}
	return a, held.Revision, err
}

// SwapAuthority writes the state if the entry has a revision still, and returns its new one. Otherwise it returns store.ErrConflict.
func SwapAuthority(ctx context.Context, registry store.Store, revision uint64, a Authority) (uint64, error) {
	return swap(ctx, registry, AuthorityKey, revision, a)
}

// SaveAuthority writes the state.
func SaveAuthority(ctx context.Context, registry store.Store, a Authority) error {
	return save(ctx, registry, AuthorityKey, a)
}

// MergeAuthority takes over another copy's state if it is the later one.
func MergeAuthority(ctx context.Context, registry store.Store, other Authority) error {
	existing, _, err := LoadAuthority(ctx, registry)
	if err != nil || len(other.CAs) == 0 {
		return err
	}
	if later := LaterAuthority(existing, other); later.Generation != existing.Generation || len(existing.CAs) == 0 {
		return SaveAuthority(ctx, registry, later)
	}
	return nil
}

// dropInvitations ends the invitations of a backup.
func dropInvitations(ctx context.Context, registry store.Store) error {
	a, _, err := LoadAuthority(ctx, registry)
	if err != nil || len(a.Invitations)+len(a.Waiting) == 0 {
		return err
	}
	return SaveAuthority(ctx, registry, a.Lasting())
}
