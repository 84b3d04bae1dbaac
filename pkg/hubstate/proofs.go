// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"

	"navix.sh/atoll/pkg/store"
)

const (
	proofsKey = "claim-proofs"
	// maxSecrets bounds the secrets of a hub. A hub that starts without its files adds one.
	maxSecrets = 8
)

// Proofs are the secrets with which a hub signs its dispatches of claim keys. Both files and the copy of the registry contain them, so that
// a hub that has lost its ledger can still distinguish what it sent from what a cluster invented.
type Proofs struct {
	// Secrets verify proofs. The first one also creates them.
	Secrets []ProofSecret `json:"secrets,omitempty"`
	// Since is when a hub that already had claims created its first secret. Claims from before have no proof. Zero: there are no such claims.
	Since time.Time `json:"since,omitzero"`
}

// ProofSecret is a key for HMAC-SHA256, and the name by which a proof refers to it.
type ProofSecret struct {
	ID  string `json:"id"`
	Key []byte `json:"key"`
}

// NewProofSecret returns a random secret.
func NewProofSecret() ProofSecret {
	random := make([]byte, 4+32)
	_, _ = rand.Read(random) // it never fails
	return ProofSecret{ID: hex.EncodeToString(random[:4]), Key: random[4:]}
}

// MergeProofs returns the secrets of both, with those of newer first. Since is the later of the two.
func MergeProofs(newer, older Proofs) Proofs {
	out := Proofs{Secrets: slices.Clone(newer.Secrets), Since: newer.Since}
	if older.Since.After(out.Since) {
		out.Since = older.Since
	}
	for _, s := range older.Secrets {
		if !slices.ContainsFunc(out.Secrets, func(o ProofSecret) bool { return o.ID == s.ID }) {
			out.Secrets = append(out.Secrets, s)
		}
	}
	out.Secrets = out.Secrets[:min(len(out.Secrets), maxSecrets)]
	return out
}

// Equal reports whether both are the same.
func (p Proofs) Equal(other Proofs) bool {
	return p.Since.Equal(other.Since) && slices.EqualFunc(p.Secrets, other.Secrets, func(a, b ProofSecret) bool {
		return a.ID == b.ID && slices.Equal(a.Key, b.Key)
	})
}

// LoadProofs returns a file's secrets, or none if it has no entry.
func LoadProofs(ctx context.Context, file store.Store) (Proofs, error) {
	p, err := load[Proofs](ctx, file, proofsKey)
	if err != nil || p == nil {
		return Proofs{}, err
	}
	return *p, nil
}

// HoldProofs reads a store's secrets, for SwapProofs.
func HoldProofs(ctx context.Context, s store.Store) (p Proofs, revision uint64, err error) {
	held, err := hold[Proofs](ctx, s, proofsKey)
	if held.Value != nil {
		p = *held.Value
	}
	return p, held.Revision, err
}

// SwapProofs writes a store's secrets if the entry still has the given revision. Otherwise it returns store.ErrConflict.
func SwapProofs(ctx context.Context, s store.Store, revision uint64, p Proofs) error {
	_, err := swap(ctx, s, proofsKey, revision, p)
	return err
}

// SaveProofs writes a file's secrets.
func SaveProofs(ctx context.Context, file store.Store, p Proofs) error {
	return save(ctx, file, proofsKey, p)
}
