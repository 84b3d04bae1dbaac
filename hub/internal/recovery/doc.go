// SPDX-License-Identifier: Apache-2.0

// Package recovery knows whether the hub's ledger of claim keys can be trusted, and makes a lost one whole.
//
// In go the entries by which the two files name their ledger (package hubstate), and word of every cluster whose key index
// has been taken into the ledger; out come whether claims with a key may be served, and the numbers of their attempts.
//
// # When the hub is recovering
//
// The registry remembers which ledger belongs to it, and how far that had come when it was last looked at, every 30 s.
// There is none, or another one, or an older copy of it, or it says of itself that a backup was restored: then keys may have been answered that this ledger does not know, and no claim with a key is served until every
// registered cluster has sent its key index, or an operator accepts that some have not. A restart with both files intact
// is none of this. How far it has come is in the ledger, so that a restart in the middle goes on; the new ledger's name is
// written there before it is written into the registry, so that one before that begins anew.
//
// After an accepted loss the clusters that have not been heard get no new claims with a key until they are: what they hold
// is taken into the ledger first.
//
// # Epochs
//
// Attempts of a ledger that follows a lost one begin where no attempt of the lost one can have come: at the next ten
// millions. So an attempt number tells whether this ledger made it. Of two Pods with one key the higher attempt is the later
// one; within an epoch the lower one was given up for it and was never answered, between epochs both may have been.
//
// While the hub is recovering, an attempt of our epoch or a later one was made by a ledger that the files do not know of, as
// with a backup from before an earlier loss. The epoch rises above it, by 8 at most in one recovery and never beyond half of
// all; because a cluster that names the last epoch would leave none for the next loss: TestEpochs, and in package claims
// TestI15EpochsAreNotUsedUp.
//
// # What holds where both files are lost (I2)
//
// Package registrycopy has written down elsewhere which clusters are registered, and which ledger there was: the hub is recovering,
// as if the ledger alone were lost. Where it was told to keep no such copy, or that is lost as well, nobody can tell the hub
// from a new one; nor one whose volume was set back with both files in it from one that was not. Such a hub believes no
// cluster about keys (I15): a key can be answered a second sandbox. It counts the keys that clusters name and that it did not
// send (atoll_hub_claim_keys_unsent_total), which is how such a loss is noticed.
package recovery
