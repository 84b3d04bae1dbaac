// SPDX-License-Identifier: Apache-2.0

package registrycopy

import (
	"slices"

	"navix.sh/atoll/pkg/hubstate"
)

// document is the content of the place.
type document struct {
	Format   int               `json:"format"`
	Ledger   hubstate.Identity `json:"ledger"`
	Clusters []hubstate.Record `json:"clusters"`
	Proofs   hubstate.Proofs   `json:"proofs,omitzero"` // absent in documents of older builds
	// Authority is the hub's CA, without invitations; nil: it has none, or the document is of an older build.
	Authority *hubstate.Authority `json:"authority,omitempty"`
}

const format = 1

// wanted reports whether the registry may lack entries of the document.
func wanted(ledger *hubstate.Ledger, registry *hubstate.Identity) bool {
	return registry == nil || ledger != nil && ledger.Restored
}

// registryMustName reports whether the registry must name the document's ledger, so that the loss is noticed and no attempt is repeated. It
// must if nothing else is left, or if the document's ledger is later.
func registryMustName(seen hubstate.Identity, ledger *hubstate.Ledger, registry *hubstate.Identity) bool {
	if ledger == nil && registry == nil {
		return true
	}
	return (ledger == nil || seen.Epoch > ledger.Epoch) && (registry == nil || seen.Epoch > registry.Epoch)
}

// completed returns the records of a registry that may lack entries of the document. If both have a record of the same cluster (name and
// uid), the registry's record stays, and gets only the document's scope, forgotten uids and revocations; because the excerpt in its place
// would end a drain, and drop keys of certificates.
func completed(seen, known []hubstate.Record) []hubstate.Record {
	merged := hubstate.Merge(seen, known)
	for i, r := range merged {
		at := slices.IndexFunc(known, func(k hubstate.Record) bool { return k.ClusterID == r.ClusterID })
		if at < 0 || known[at].UID != r.UID {
			continue
		}
		merged[i] = known[at]
		merged[i].Forgotten, merged[i].RefusedKeys, merged[i].Scope = r.Forgotten, r.RefusedKeys, r.Scope
		if r.RevokedAt.After(known[at].RevokedAt) { // the backup's keys were issued before it
			merged[i].RevokedAt, merged[i].Keys = r.RevokedAt, nil
		}
	}
	return merged
}

// excerpt returns the part of a record that the document has.
func excerpt(r hubstate.Record) hubstate.Record {
	return hubstate.Record{ClusterID: r.ClusterID, UID: r.UID, RegisteredAt: r.RegisteredAt, Forgotten: r.Forgotten,
		RefusedKeys: r.RefusedKeys, RevokedAt: r.RevokedAt, Scope: r.Scope}
}

// empty reports whether the document needs no entry for an excerpt. A cluster that was invited and has not registered yet may have a scope
// or revocations, which must outlive the volume: its certificate does.
func empty(r hubstate.Record) bool {
	return r.UID == "" && r.Scope == nil && len(r.Forgotten)+len(r.RefusedKeys) == 0 && r.RevokedAt.IsZero()
}
