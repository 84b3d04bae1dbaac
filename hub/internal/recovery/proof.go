// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// Dispatch identifies what a proof covers: one attempt of a claim key, as sent to one cluster.
type Dispatch struct {
	Cluster, UID string // of the cluster
	KeyHash      string
	Attempt      int32
}

// Verdict is the result of checking a proof, or its absence, for a dispatch.
type Verdict string

// The verdicts.
const (
	// Proven: this hub, or a hub whose secret it has, sent the dispatch.
	Proven Verdict = "Proven"
	// Grandfathered: there is no proof, but the loss came so soon after hubs began to add proofs that the dispatch counts.
	Grandfathered Verdict = "Grandfathered"
	// Unproven: there is no proof under a secret that this hub has.
	Unproven Verdict = "Unproven"
	// Forged: the proof names a secret of this hub and was not made with it.
	Forged Verdict = "Forged"
)

const (
	// proofBytes is the length of a truncated HMAC-SHA256.
	proofBytes = 16
	// unprovenFor is how long after the first secret a recovery accepts keys without a proof. It is as long as workers keep records.
	unprovenFor = 7 * 24 * time.Hour
)

// Proof returns the proof that the worker keeps with the claim: the id of a secret, and a MAC with it.
func (s *State) Proof(d Dispatch) string {
	if len(s.proofs.Secrets) == 0 {
		return ""
	}
	return proofUnder(s.proofs.Secrets[0], d)
}

func proofUnder(secret hubstate.ProofSecret, d Dispatch) string {
	return macUnder(secret, "atoll claim", d.Cluster, d.UID, d.KeyHash, strconv.Itoa(int(d.Attempt)))
}

// macUnder returns the id of a secret and a MAC with it. The first part names the kind of the others.
func macUnder(secret hubstate.ProofSecret, parts ...string) string {
	mac := hmac.New(sha256.New, secret.Key)
	_, _ = mac.Write([]byte(strings.Join(parts, "\x00")))
	return secret.ID + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:proofBytes])
}

// verifyMAC checks a MAC. under computes the expected MAC with a secret.
func (s *State) verifyMAC(proof string, under func(secret hubstate.ProofSecret) string) Verdict {
	id, _, _ := strings.Cut(proof, ".")
	for _, secret := range s.proofs.Secrets {
		switch {
		case secret.ID != id:
		case hmac.Equal([]byte(proof), []byte(under(secret))):
			return Proven
		default:
			return Forged
		}
	}
	return Unproven
}

// Verify checks the proof that a cluster sends.
func (s *State) Verify(d Dispatch, proof string) Verdict {
	got := s.verifyMAC(proof, func(secret hubstate.ProofSecret) string { return proofUnder(secret, d) })
	if got == Unproven && s.grandfathers() {
		return Grandfathered
	}
	return got
}

// grandfathers reports whether the running recovery accepts keys without a proof. Both times are stored: a clock that is off by ten minutes
// makes no relevant difference (I11).
func (s *State) grandfathers() bool {
	since := s.lostAt.Load()
	return since != nil && !s.proofs.Since.IsZero() && since.Sub(s.proofs.Since) < unprovenFor
}

// decideProofs returns the secrets to use from now on, given those of both files. A hub with files but without a secret has sent claims
// without proofs.
func decideProofs(ledger, registry hubstate.Proofs, isNew bool, now time.Time) hubstate.Proofs {
	out := hubstate.MergeProofs(registry, ledger)
	if len(out.Secrets) > 0 {
		return out
	}
	out.Secrets = []hubstate.ProofSecret{hubstate.NewProofSecret()}
	if !isNew {
		out.Since = now.UTC()
	}
	return out
}

// openProofs reads the secrets of both files and writes the merged secrets to both; because either file may be lost.
func (s *State) openProofs(ctx context.Context, isNew bool, now time.Time) error {
	ledger, inLedger, err := hubstate.HoldProofs(ctx, s.claims)
	if err != nil {
		return err
	}
	registry, inRegistry, err := hubstate.HoldProofs(ctx, s.registry)
	if err != nil {
		return err
	}
	s.proofs = decideProofs(ledger, registry, isNew, now)
	for _, file := range []struct {
		store.Store
		has      hubstate.Proofs
		revision uint64
	}{{s.registry, registry, inRegistry}, {s.claims, ledger, inLedger}} {
		if s.proofs.Equal(file.has) {
			continue
		}
		if err := hubstate.SwapProofs(ctx, file.Store, file.revision, s.proofs); err != nil {
			return err
		}
	}
	return nil
}
