// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"slices"
	"time"

	"navix.sh/atoll/pkg/store"
)

// AuthorityKey is the registry's key for the state of the hub's certificate authority.
const AuthorityKey = "authority"

// RotationStep is a step of a CA rotation. It is stored.
type RotationStep string

// The steps, in order. After the last one the CA is stable.
const (
	Stable       RotationStep = ""
	Distributing RotationStep = "Distributing" // clusters receive the new CA and trust it; the old one signs
	Renewing     RotationStep = "Renewing"     // the new CA signs, and clusters receive new certificates; both are trusted
	Dropping     RotationStep = "Dropping"     // clusters stop trusting the old CA
)

// Authority is the state of the hub's certificate authority. It is a single entry, so that each change is one compare-and-swap.
type Authority struct {
	Generation  uint64       `json:"generation"` // rises with each step, so that the later of two copies is known
	CAs         []CA         `json:"cas"`        // oldest first: one, or two during a rotation
	Step        RotationStep `json:"step,omitempty"`
	Since       time.Time    `json:"since"`          // when the step began
	Skip        bool         `json:"skip,omitempty"` // do not wait for clusters in this step
	Invitations []Invitation `json:"invitations,omitempty"`
	Waiting     []Joiner     `json:"waiting,omitempty"` // for an approval
}

// CA is a certificate authority.
type CA struct {
	Cert    []byte    `json:"cert"` // PEM
	Key     []byte    `json:"key"`  // PEM
	Created time.Time `json:"created"`
	Given   bool      `json:"given,omitempty"` // supplied by the operator
}

// Scope is what a cluster may serve. An empty list allows everything.
type Scope struct {
	Namespaces []string `json:"namespaces,omitempty"`
	Teams      []string `json:"teams,omitempty"`
	Envs       []string `json:"envs,omitempty"` // NAMESPACE/NAME
}

// Invitation lets one cluster join, once.
type Invitation struct {
	ID        string    `json:"id"`
	ClusterID string    `json:"clusterID"`
	Secret    []byte    `json:"secret"` // SHA-256 of the secret
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires"`
	CreatedBy string    `json:"createdBy,omitempty"`
	Scope     *Scope    `json:"scope,omitempty"` // nil: the scope stays as it is, or was already applied
	// Set for the cluster that used the invitation. Only that cluster may use it again, because it may not have received the response.
	UsedAt time.Time `json:"usedAt,omitzero"`
	UID    string    `json:"uid,omitempty"`
	Key    string    `json:"key,omitempty"` // link.PeerKey
	// Granted means that the cluster was admitted, so that its certificate may be issued.
	Granted bool `json:"granted,omitempty"`
}

// Joiner is a cluster that waits for an approval.
type Joiner struct {
	ClusterID  string    `json:"clusterID"`
	UID        string    `json:"uid"`
	Key        string    `json:"key"`
	Invitation string    `json:"invitation"` // id
	Remote     string    `json:"remote"`
	Since      time.Time `json:"since"`
}

// Lasting returns the part that is kept when the store is lost: the CAs. Invitations are not kept, because a used invitation would become
// unused again.
func (a Authority) Lasting() Authority {
	a.Invitations, a.Waiting = nil, nil
	return a
}

// Clone returns a copy whose lists can be modified.
func (a Authority) Clone() Authority {
	a.CAs, a.Invitations, a.Waiting = slices.Clone(a.CAs), slices.Clone(a.Invitations), slices.Clone(a.Waiting)
	return a
}

// LaterAuthority returns the later of two states. The result has invitations only if it is the existing state.
func LaterAuthority(existing, other Authority) Authority {
	if other.Generation > existing.Generation || len(existing.CAs) == 0 {
		return other.Lasting()
	}
	return existing
}

// LoadAuthority returns the state and its revision, or the zero value and revision 0 if there is none.
func LoadAuthority(ctx context.Context, registry store.Store) (a Authority, revision uint64, err error) {
	held, err := hold[Authority](ctx, registry, AuthorityKey)
	if held.Value != nil {
		a = *held.Value
	}
	return a, held.Revision, err
}

// SwapAuthority writes the state if the entry still has the given revision, and returns the new revision. Otherwise it returns
// store.ErrConflict.
func SwapAuthority(ctx context.Context, registry store.Store, revision uint64, a Authority) (uint64, error) {
	return swap(ctx, registry, AuthorityKey, revision, a)
}

// SaveAuthority writes the state.
func SaveAuthority(ctx context.Context, registry store.Store, a Authority) error {
	return save(ctx, registry, AuthorityKey, a)
}

// MergeAuthority stores the state of another copy if it is later.
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

// dropInvitations removes the invitations and joiners of a backup.
func dropInvitations(ctx context.Context, registry store.Store) error {
	a, _, err := LoadAuthority(ctx, registry)
	if err != nil || len(a.Invitations)+len(a.Waiting) == 0 {
		return err
	}
	return SaveAuthority(ctx, registry, a.Lasting())
}
