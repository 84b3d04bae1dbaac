// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"navix.sh/atoll/pkg/store"
)

const (
	ledgerKey = "ledger"
	markKey   = "ledger-revision"
	// unnamed is the id of ledgers from before ids existed.
	unnamed = "unnamed"
)

// Identity names a ledger.
type Identity struct {
	ID string `json:"id"`
	// Epoch counts the losses that a hub has recorded: a ledger that replaces a lost one has a higher epoch.
	Epoch int32 `json:"epoch"`
}

// Ledger is the entry of the claims file about itself.
type Ledger struct {
	Identity
	// Restored is set by Restore, until a hub starts on the file.
	Restored bool      `json:"restored,omitempty"`
	Recovery *Recovery `json:"recovery,omitempty"` // the last one
}

// Cause is why a ledger is incomplete.
type Cause string

// The causes.
const (
	LedgerLost     Cause = "LedgerLost"     // there was none
	LedgerReplaced Cause = "LedgerReplaced" // it belongs to another registry
	LedgerRestored Cause = "LedgerRestored" // it is a backup's
	LedgerSetBack  Cause = "LedgerSetBack"  // it is an older copy of itself
)

// Recovery is the progress of completing a ledger.
type Recovery struct {
	Cause    Cause     `json:"cause"`
	Since    time.Time `json:"since"`
	Epoch    int32     `json:"epoch,omitempty"` // of the ledger when this began; 0: an older build began it
	Heard    []string  `json:"heard,omitempty"` // clusters whose keys are in the ledger now
	Accepted bool      `json:"accepted,omitempty"`
	Over     bool      `json:"over,omitempty"`
}

// Mark is the ledger's progress, as the registry remembers it: at the last check, not at the last write.
type Mark struct {
	ID       string `json:"id"`
	Revision uint64 `json:"revision"`
}

// LoadMark reads the registry's mark, nil if there is none.
func LoadMark(ctx context.Context, registry store.Store) (*Mark, error) {
	return load[Mark](ctx, registry, markKey)
}

// SaveMark writes the registry's mark.
func SaveMark(ctx context.Context, registry store.Store, m Mark) error {
	return save(ctx, registry, markKey, m)
}

// LoadLedger reads the claims file's entry, nil when there is none.
func LoadLedger(ctx context.Context, claims store.Store) (*Ledger, error) {
	return load[Ledger](ctx, claims, ledgerKey)
}

// LoadIdentity reads the registry's entry, nil when there is none.
func LoadIdentity(ctx context.Context, registry store.Store) (*Identity, error) {
	return load[Identity](ctx, registry, ledgerKey)
}

// SaveLedger writes the claims file's entry.
func SaveLedger(ctx context.Context, claims store.Store, l Ledger) error {
	return save(ctx, claims, ledgerKey, l)
}

// SaveIdentity writes the registry's entry.
func SaveIdentity(ctx context.Context, registry store.Store, id Identity) error {
	return save(ctx, registry, ledgerKey, id)
}

func load[T any](ctx context.Context, s store.Store, key string) (*T, error) {
	entry, ok, err := s.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading the ledger's name: %w", err)
	}
	if !ok {
		return nil, nil // there is none
	}
	var value T
	if err := json.Unmarshal(entry.Value, &value); err != nil {
		return nil, fmt.Errorf("the ledger's name is damaged: %w", err)
	}
	return &value, nil
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
