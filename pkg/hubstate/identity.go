// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"navix.sh/atoll/pkg/store"
)

// LedgerKey is the key of the entry that identifies the ledger, in both stores.
const LedgerKey = "ledger"

const (
	markKey = "ledger-revision"
	// unnamed is the id of a ledger that was created before ledgers had ids.
	unnamed = "unnamed"
)

// Identity identifies a ledger.
type Identity struct {
	ID string `json:"id"`
	// Epoch counts the losses that a hub has recorded: a ledger that replaces a lost one has a higher epoch.
	Epoch int32 `json:"epoch"`
}

// Ledger is the entry in which the claims file describes itself.
type Ledger struct {
	Identity
	// Restored is set by Restore. The next hub that starts on the file clears it.
	Restored bool `json:"restored,omitempty"`
	// Former are the ids of the ledgers that this one knowingly replaces.
	Former []string `json:"former,omitempty"`
	// Moved identifies the ledger that a migration copied, and its progress at that time. Later writes to that ledger are missing here.
	Moved    *Mark     `json:"moved,omitempty"`
	Recovery *Recovery `json:"recovery,omitempty"` // the last recovery
}

// maxFormer bounds how many replaced ledgers are remembered, so that a worker that missed several losses does not cause another one.
const maxFormer = 64

// FormerOf returns the Former of a ledger that replaces this one: the Former of this one, its id, and another id unless that is "".
func (l Ledger) FormerOf(other string) []string {
	names := slices.Clone(l.Former)
	for _, id := range []string{l.ID, other} {
		if id != "" && !slices.Contains(names, id) {
			names = append(names, id)
		}
	}
	return names[max(0, len(names)-maxFormer):]
}

// Cause is why a ledger is incomplete.
type Cause string

// The causes.
const (
	LedgerLost     Cause = "LedgerLost"     // there was no ledger
	LedgerReplaced Cause = "LedgerReplaced" // the ledger belongs to another registry
	LedgerRestored Cause = "LedgerRestored" // the ledger comes from a backup
	LedgerSetBack  Cause = "LedgerSetBack"  // the ledger is an older copy of itself
)

// Recovery is the progress of making an incomplete ledger complete.
type Recovery struct {
	Cause    Cause     `json:"cause"`
	Since    time.Time `json:"since"`
	Epoch    int32     `json:"epoch,omitempty"` // of the ledger when the recovery began; 0: an older build began it
	Heard    []string  `json:"heard,omitempty"` // clusters whose keys the ledger now contains
	Accepted bool      `json:"accepted,omitempty"`
	Over     bool      `json:"over,omitempty"`
}

// Mark is the ledger's progress as the registry recorded it, at the last check rather than at the last write.
type Mark struct {
	ID       string `json:"id"`
	Revision uint64 `json:"revision"`
	Commits  uint64 `json:"commits,omitempty"` // commits of the store; 0: the store does not count them
}

// LoadMark returns the registry's mark, or nil if there is none.
func LoadMark(ctx context.Context, registry store.Store) (*Mark, error) {
	return load[Mark](ctx, registry, markKey)
}

// SaveMark writes the registry's mark.
func SaveMark(ctx context.Context, registry store.Store, m Mark) error {
	return save(ctx, registry, markKey, m)
}

// LoadLedger returns the entry of the claims file, or nil if there is none.
func LoadLedger(ctx context.Context, claims store.Store) (*Ledger, error) {
	return load[Ledger](ctx, claims, LedgerKey)
}

// LoadIdentity returns the entry of the registry, or nil if there is none.
func LoadIdentity(ctx context.Context, registry store.Store) (*Identity, error) {
	return load[Identity](ctx, registry, LedgerKey)
}

// SaveLedger writes the claims file's entry.
func SaveLedger(ctx context.Context, claims store.Store, l Ledger) error {
	return save(ctx, claims, LedgerKey, l)
}

// SaveIdentity writes the registry's entry.
func SaveIdentity(ctx context.Context, registry store.Store, id Identity) error {
	return save(ctx, registry, LedgerKey, id)
}

// Held is the value of an entry and its revision. If there is no entry, they are nil and 0.
type Held[T any] struct {
	Value    *T
	Revision uint64
}

// HoldLedger reads the entry of the claims file, for SwapLedger.
func HoldLedger(ctx context.Context, claims store.Store) (Held[Ledger], error) {
	return hold[Ledger](ctx, claims, LedgerKey)
}

// HoldIdentity reads the entry of the registry, for SwapIdentity.
func HoldIdentity(ctx context.Context, registry store.Store) (Held[Identity], error) {
	return hold[Identity](ctx, registry, LedgerKey)
}

// SwapLedger writes the entry of the claims file if it still has the given revision, and returns the new revision. Otherwise it returns
// store.ErrConflict.
func SwapLedger(ctx context.Context, claims store.Store, revision uint64, l Ledger) (uint64, error) {
	return swap(ctx, claims, LedgerKey, revision, l)
}

// SwapIdentity is SwapLedger for the registry's entry.
func SwapIdentity(ctx context.Context, registry store.Store, revision uint64, id Identity) (uint64, error) {
	return swap(ctx, registry, LedgerKey, revision, id)
}

func load[T any](ctx context.Context, s store.Store, key string) (*T, error) {
	held, err := hold[T](ctx, s, key)
	return held.Value, err
}

func hold[T any](ctx context.Context, s store.Store, key string) (held Held[T], err error) {
	entry, ok, err := s.Get(ctx, key)
	if err != nil {
		return held, fmt.Errorf("reading the ledger's name: %w", err)
	}
	if !ok {
		return held, nil
	}
	var value T
	if err := json.Unmarshal(entry.Value, &value); err != nil {
		return held, fmt.Errorf("the ledger's name is damaged: %w", err)
	}
	return Held[T]{&value, entry.Revision}, nil
}

func swap(ctx context.Context, s store.Store, key string, revision uint64, value any) (uint64, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return 0, fmt.Errorf("encoding the ledger's name: %w", err)
	}
	revision, err = store.CompareAndSwap(ctx, s, key, revision, data)
	if err != nil {
		return 0, fmt.Errorf("writing the ledger's name: %w", err)
	}
	return revision, nil
}

func save(ctx context.Context, s store.Store, key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding the ledger's name: %w", err)
	}
	if _, err := s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: key, Value: data}}}); err != nil {
		return fmt.Errorf("writing the ledger's name: %w", err)
	}
	return nil
}
