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
	c := &Copy{place: place, file: registry, log: log, known: map[string]hubstate.Record{}}
	ledger, err := hubstate.LoadLedger(ctx, claims)
	if err != nil {
		return nil, err
	}
	identity, err := hubstate.LoadIdentity(ctx, registry)
	if err != nil || !wanted(ledger, identity) {
		return c, err
	}
	seen, err := c.read(ctx)
	if errors.Is(err, ErrNone) {
		return c, nil
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
	if registryMustName(seen.Ledger, ledger, identity) {
		return c, hubstate.SaveIdentity(ctx, registry, seen.Ledger)
	}
	return c, nil
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

func (c *Copy) read(ctx context.Context) (document, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var seen document
	data, err := c.place.Read(ctx)
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
func (c *Copy) Guard(inner Registry) Registry { return guarded{inner, c} }

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
	c, next := g.copy, excerpt(r)
	if c.knows(next) {
		return g.Registry.Save(ctx, r)
	}
	before := c.swap(next) // first, so that one of many concurrent registrations writes for all
	c.writing.Lock()
	err := c.write(ctx)
	c.writing.Unlock()
	if err == nil {
		err = g.Registry.Save(ctx, r)
	}
	if err != nil {
		before.ClusterID = r.ClusterID
		c.swap(before)
	}
	return err
}

func (c *Copy) knows(r hubstate.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return reflect.DeepEqual(c.known[r.ClusterID], r)
}

// swap replaces an entry and returns the previous one.
func (c *Copy) swap(r hubstate.Record) hubstate.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.known[r.ClusterID]
	if empty(r) {
		delete(c.known, r.ClusterID)
	} else {
		c.known[r.ClusterID] = r
	}
	return before
}

// Run follows the registry's ledger entry, and repeats a write that failed or was reverted, until ctx ends.
func (c *Copy) Run(ctx context.Context, on clock.WithTicker) error {
	ticker := on.NewTicker(syncEvery)
	defer ticker.Stop()
	for round := 1; ; round++ {
		if round%verifyEvery == 0 {
			c.verify(ctx)
		}
		c.Sync(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// verify makes the next write rewrite the document if the place has lost it; because the place reports no replacement or removal.
func (c *Copy) verify(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c.writing.Lock()
	defer c.writing.Unlock()
	if data, err := c.place.Read(ctx); err != nil || !bytes.Equal(data, c.written) {
		c.written = nil
	}
}

// Keep writes the document if it has changed.
func (c *Copy) Keep(ctx context.Context) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.write(ctx)
}

// Sync writes the document if it has changed. A failure is logged once, and fails later registrations.
func (c *Copy) Sync(ctx context.Context) {
	c.writing.Lock()
	defer c.writing.Unlock()
	err := c.write(ctx)
	if failed := err != nil && ctx.Err() == nil; failed != c.failing {
		if c.failing = failed; failed {
			c.log.Error(err, "Could not write the copy of the registry; no other cluster can register until it is written", "at",
				c.place.String())
		} else {
			c.log.Info("The copy of the registry is written again", "at", c.place.String())
		}
	}
}

// write writes the document if it has changed. Called with writing held.
func (c *Copy) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	identity, err := hubstate.LoadIdentity(ctx, c.file)
	if err != nil {
		return err
	}
	proofs, err := hubstate.LoadProofs(ctx, c.file)
	if err != nil {
		return err
	}
	authority, _, err := hubstate.LoadAuthority(ctx, c.file)
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
	c.mu.Lock()
	for _, id := range slices.Sorted(maps.Keys(c.known)) {
		next.Clusters = append(next.Clusters, c.known[id])
	}
	c.mu.Unlock()
	data, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return fmt.Errorf("encoding which clusters are registered: %w", err)
	}
	if bytes.Equal(data, c.written) {
		return nil
	}
	c.written = nil
	if err := c.place.Write(ctx, data); err != nil {
		return fmt.Errorf("writing to %s which clusters are registered: %w", c.place, err)
	}
	c.written = data
	return nil
}
