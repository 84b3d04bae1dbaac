// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"slices"

	"navix.sh/atoll/pkg/hubstate"
)

// attemptsPerEpoch is the number of attempts of one key in an epoch.
const attemptsPerEpoch = 10_000_000

// maxEpoch is the last epoch whose attempts fit into a number.
const maxEpoch = (1<<31-1)/attemptsPerEpoch - 1

// EpochOf returns the epoch of the ledger that created an attempt.
func EpochOf(attempt int32) int32 { return attempt / attemptsPerEpoch }

// FirstAttempt returns a key's first attempt in an epoch.
func FirstAttempt(epoch int32) int32 { return epoch*attemptsPerEpoch + 1 }

// pairing is how two files relate.
type pairing string

const (
	fresh        pairing = "Fresh"        // both are new
	paired       pairing = "Paired"       // nothing was lost
	registryLost pairing = "RegistryLost" // the ledger is complete, and clusters register anew
	recovers     pairing = "Recovers"     // the ledger is not the one that the registry remembers
)

// decidePairing compares the entries of the files, nil where a file has none. setBack is a ledger that was once further. The
// returned epoch is the ledger's from now on.
func decidePairing(ledger *hubstate.Ledger, registry *hubstate.Identity, setBack bool) (p pairing, cause hubstate.Cause, epoch int32) {
	switch {
	case ledger == nil && registry == nil:
		return fresh, "", 0
	case ledger == nil:
		return recovers, hubstate.LedgerLost, registry.Epoch + 1
	case ledger.Restored && registry == nil:
		return recovers, hubstate.LedgerRestored, ledger.Epoch + 1
	case ledger.Restored:
		return recovers, hubstate.LedgerRestored, max(ledger.Epoch, registry.Epoch) + 1
	case registry == nil:
		return registryLost, "", ledger.Epoch
	case ledger.ID != registry.ID:
		return recovers, hubstate.LedgerReplaced, max(ledger.Epoch, registry.Epoch) + 1
	case setBack:
		return recovers, hubstate.LedgerSetBack, max(ledger.Epoch, registry.Epoch) + 1
	default:
		return paired, "", max(ledger.Epoch, registry.Epoch)
	}
}

// unheard lists the registered clusters whose keys may be missing.
func unheard(r *hubstate.Recovery, registered []string) []string {
	if r == nil || r.Over {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(registered), func(id string) bool { return slices.Contains(r.Heard, id) })
}

// maxRaise bounds by how many epochs clusters' reports raise the epoch in one recovery. One is needed for each loss that is in
// none of the remaining files, as with a backup from before it.
const maxRaise = 8

// lastLost returns the last epoch that a lost ledger can have had, for a recovery that began in an epoch. Clusters alone never
// use up more than half of all epochs; the rest is reserved for losses.
func lastLost(began int32) int32 { return max(began, min(began+maxRaise, maxEpoch/2)) }

// raise returns the epoch after an attempt of another epoch was seen on a Pod. While recovering, nothing has been claimed in the
// current epoch: an attempt of it was created by a ledger that is unknown to this one.
func raise(epoch int32, recovering bool, seen int32) int32 {
	if recovering && seen >= epoch {
		return seen + 1
	}
	return epoch
}
