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

// pairing is the relation of the two files.
type pairing string

const (
	fresh        pairing = "Fresh"        // both are new
	paired       pairing = "Paired"       // nothing was lost
	registryLost pairing = "RegistryLost" // the ledger is complete, and clusters register again
	recovers     pairing = "Recovers"     // the ledger is not the one that the registry names
)

// decidePairing compares the entries of the files; an entry is nil if its file has none. setBack means that the ledger was once further.
// epoch is the ledger's epoch from now on.
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

// maxRaise bounds by how many epochs the reports of clusters can raise the epoch in one recovery. One epoch is needed for each loss that no
// remaining file records, for example with a backup from before it.
const maxRaise = 8

// lastLost returns the last epoch that a lost ledger can have had, given the epoch in which the recovery began. Clusters alone never use up
// more than half of all epochs. The others are reserved for losses.
func lastLost(began int32) int32 { return max(began, min(began+maxRaise, maxEpoch/2)) }

// raise returns the epoch after a Pod was seen with an attempt of the epoch seen. During a recovery nothing has been claimed in the current
// epoch: an attempt of it comes from a ledger that this one does not know.
func raise(epoch int32, recovering bool, seen int32) int32 {
	if recovering && seen >= epoch {
		return seen + 1
	}
	return epoch
}
