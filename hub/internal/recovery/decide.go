// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"slices"

	"navix.sh/atoll/pkg/hubstate"
)

// attemptsPerEpoch is how many attempts of one key have room in an epoch.
const attemptsPerEpoch = 10_000_000

// maxEpoch is the last one whose attempts are numbers.
const maxEpoch = (1<<31-1)/attemptsPerEpoch - 1

// EpochOf answers which ledger made an attempt.
func EpochOf(attempt int32) int32 { return attempt / attemptsPerEpoch }

// FirstAttempt of a key in an epoch.
func FirstAttempt(epoch int32) int32 { return epoch*attemptsPerEpoch + 1 }

// pairing is what two files are to each other.
type pairing string

const (
	fresh        pairing = "Fresh"        // both are new
	paired       pairing = "Paired"       // nothing was lost
	registryLost pairing = "RegistryLost" // the ledger is whole, who the clusters are is learned anew
	recovers     pairing = "Recovers"     // the ledger is not what the registry remembers
)

// decidePairing compares what the files say, nil where there is nothing. setBack is a ledger that has been further. The
// epoch is that of the ledger from now on.
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

// maxRaise bounds by how many epochs the word of clusters raises the epoch in one recovery. It takes one for each loss that
// the files that are left do not know of, as with a backup from before it.
const maxRaise = 8

// lastLost returns the last epoch that a lost ledger can have had, for a recovery that began in an epoch. Clusters alone
// never use up more than half of all epochs: the rest is left for losses.
func lastLost(began int32) int32 { return max(began, min(began+maxRaise, maxEpoch/2)) }

// raise returns the epoch after an attempt of another epoch was seen on a Pod. While recovering nothing has been claimed in
// ours: what is seen there was made by a ledger that this one does not know of.
func raise(epoch int32, recovering bool, seen int32) int32 {
	if recovering && seen >= epoch {
		return seen + 1
	}
	return epoch
}
