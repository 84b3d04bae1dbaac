// SPDX-License-Identifier: Apache-2.0

package registrycopy

import "navix.sh/atoll/pkg/hubstate"

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

// remembered is the ledger that the registry must name so that the loss is noticed, and no attempt repeated: the document's, if
// nothing else is left or it is later.
func remembered(seen hubstate.Identity, ledger *hubstate.Ledger, registry *hubstate.Identity) bool {
	if ledger == nil && registry == nil {
		return true
	}
	return (ledger == nil || seen.Epoch > ledger.Epoch) && (registry == nil || seen.Epoch > registry.Epoch)
}

// excerpt is the part of a record that the document has.
func excerpt(r hubstate.Record) hubstate.Record {
	return hubstate.Record{ClusterID: r.ClusterID, UID: r.UID, RegisteredAt: r.RegisteredAt, Forgotten: r.Forgotten,
		RefusedKeys: r.RefusedKeys, Scope: r.Scope}
}
