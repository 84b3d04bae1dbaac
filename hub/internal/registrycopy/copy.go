// SPDX-License-Identifier: Apache-2.0

package registrycopy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/chanmutex"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

const (
	syncEvery   = 30 * time.Second
	verifyEvery = 20 // rounds
	callTimeout = 5 * time.Second
)

// ErrNone means that a place has no document.
var ErrNone = errors.New("there is none")

// Place stores one document.
type Place interface {
	// Read returns ErrNone if nothing was ever written.
	Read(ctx context.Context) ([]byte, error)
	// Write returns once the document is durable.
	Write(ctx context.Context, document []byte) error
	String() string
}

// Registry is the hub's store of its clusters' records: package fleet's.
type Registry interface {
	Load(ctx context.Context) ([]hubstate.Record, error)
	Save(ctx context.Context, r hubstate.Record) error
}

// Copy keeps the document equal to the registry. All methods are safe for concurrent use.
type Copy struct {
	place Place
	file  store.Store // the registry's store
	log   logr.Logger

	writing chanmutex.Mutex // held while the document is written
	written []byte          // nil: unknown
	failing bool

	mu    sync.Mutex
	known map[string]hubstate.Record
}

// Open returns a Copy. If the registry may lack entries of the document, it reads the document and adds them to the registry.
func Open(ctx context.Context, place Place, claims, registry store.Store, log logr.Logger) (*Copy, error) {
	w := &Copy{place: place, file: registry, log: log, known: map[string]hubstate.Record{}}
	ledger, err := hubstate.LoadLedger(ctx, claims)
	if err != nil {
		return nil, err
	}
	identity, err := hubstate.LoadIdentity(ctx, registry)
	if err != nil || !wanted(ledger, identity) {
		return w, err
	}
	seen, err := w.read(ctx)
	if errors.Is(err, ErrNone) {
		return w, nil
	} else if err != nil {
		return nil, fmt.Errorf("the registry is missing or a backup's, and which clusters were registered cannot be read from %s: %w", place, err)
	}
	known, err := hubstate.LoadRecords(ctx, registry)
	if err != nil {
		return nil, err
	}
	for _, r := range completed(seen.Clusters, known) {
		if err := hubstate.SaveRecord(ctx, registry, r); err != nil {
			return nil, err
		}
	}
	if err := restoreProofs(ctx, registry, seen.Proofs); err != nil {
		return nil, err
	}
	if seen.Authority != nil {
		if err := hubstate.MergeAuthority(ctx, registry, *seen.Authority); err != nil {
			return nil, err
		}
	}
	log.Info("The registry was missing or a backup's: clusters were added that are known elsewhere", "from", place.String(), "clusters",
		len(seen.Clusters))
	// Last, so that a hub that dies before this starts over.
	if remembered(seen.Ledger, ledger, identity) {
		return w, hubstate.SaveIdentity(ctx, registry, seen.Ledger)
	}
	return w, nil
}

// restoreProofs adds the document's secrets to the registry's.
func restoreProofs(ctx context.Context, registry store.Store, seen hubstate.Proofs) error {
	if len(seen.Secrets) == 0 {
		return nil
	}
	known, err := hubstate.LoadProofs(ctx, registry)
	if err != nil {
		return err
	}
	return hubstate.SaveProofs(ctx, registry, hubstate.MergeProofs(seen, known))
}

func (w *Copy) read(ctx context.Context) (document, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var seen document
	data, err := w.place.Read(ctx)
	if err != nil {
		return seen, err
	}
	if err := json.Unmarshal(data, &seen); err != nil {
		return seen, fmt.Errorf("it is damaged, remove it if this hub is new: %w", err)
	}
	if seen.Format != format {
		return seen, fmt.Errorf("it has format %d and this build knows %d: %w", seen.Format, format, store.ErrNewer)
	}
	return seen, nil
}

// Guard returns a Registry that writes the document before every change that the document covers.
func (w *Copy) Guard(inner Registry) Registry { return guarded{inner, w} }

type guarded struct {
	Registry
	copy *Copy
}

func (g guarded) Load(ctx context.Context) ([]hubstate.Record, error) {
	records, err := g.Registry.Load(ctx)
	for _, r := range records {
		g.copy.swap(excerpt(r))
	}
	return records, err
}

func (g guarded) Save(ctx context.Context, r hubstate.Record) error {
	w, next := g.copy, excerpt(r)
	if w.knows(next) {
		return g.Registry.Save(ctx, r)
	}
	before := w.swap(next) // first, so that one of many concurrent registrations writes for all
	w.writing.Lock()
	err := w.write(ctx)
	w.writing.Unlock()
	if err == nil {
		err = g.Registry.Save(ctx, r)
	}
	if err != nil {
		before.ClusterID = r.ClusterID
		w.swap(before)
	}
	return err
}

func (w *Copy) knows(r hubstate.Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return reflect.DeepEqual(w.known[r.ClusterID], r)
}

// swap replaces an entry and returns the previous one.
func (w *Copy) swap(r hubstate.Record) hubstate.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.known[r.ClusterID]
	if r.UID == "" && len(r.Forgotten) == 0 {
		delete(w.known, r.ClusterID)
	} else {
		w.known[r.ClusterID] = r
	}
	return before
}

// Run follows the registry's ledger entry, and repeats a write that failed or was reverted, until ctx ends.
func (w *Copy) Run(ctx context.Context, c clock.WithTicker) error {
	ticker := c.NewTicker(syncEvery)
	defer ticker.Stop()
	for round := 1; ; round++ {
		if round%verifyEvery == 0 {
			w.verify(ctx)
		}
		w.Sync(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// verify makes the next write rewrite the document if the place has lost it; because the place reports no replacement or removal.
func (w *Copy) verify(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	w.writing.Lock()
	defer w.writing.Unlock()
	if data, err := w.place.Read(ctx); err != nil || !bytes.Equal(data, w.written) {
		w.written = nil
	}
}

// Keep writes the document if it has changed.
func (w *Copy) Keep(ctx context.Context) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	return w.write(ctx)
}

// Sync writes the document if it has changed. A failure is logged once, and fails later registrations.
func (w *Copy) Sync(ctx context.Context) {
	w.writing.Lock()
	defer w.writing.Unlock()
	err := w.write(ctx)
	if failed := err != nil && ctx.Err() == nil; failed != w.failing {
		if w.failing = failed; failed {
			w.log.Error(err, "Which clusters are registered cannot be written down apart from the volume; no other can register until it is", "at",
				w.place.String())
		} else {
			w.log.Info("Which clusters are registered is written down apart from the volume again", "at", w.place.String())
		}
	}
}

// write writes the document if it has changed. Called with writing held.
func (w *Copy) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	identity, err := hubstate.LoadIdentity(ctx, w.file)
	if err != nil {
		return err
	}
	proofs, err := hubstate.LoadProofs(ctx, w.file)
	if err != nil {
		return err
	}
	authority, _, err := hubstate.LoadAuthority(ctx, w.file)
	if err != nil {
		return err
	}
	next := document{Format: format, Proofs: proofs}
	if len(authority.CAs) > 0 {
		lasting := authority.Lasting()
		next.Authority = &lasting
	}
	if identity != nil {
		next.Ledger = *identity
	}
	w.mu.Lock()
	for _, id := range slices.Sorted(maps.Keys(w.known)) {
		next.Clusters = append(next.Clusters, w.known[id])
	}
	w.mu.Unlock()
	data, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return fmt.Errorf("encoding which clusters are registered: %w", err)
	}
	if bytes.Equal(data, w.written) {
		return nil
	}
	w.written = nil
	if err := w.place.Write(ctx, data); err != nil {
		return fmt.Errorf("writing to %s which clusters are registered: %w", w.place, err)
	}
	w.written = data
	return nil
}
