// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/store"
)

// Defaults of Options.
const (
	DefaultRetention  = 7 * 24 * time.Hour
	DefaultMaxRecords = 100_000
	// KeyRetention is how long a claim key returns its record. The hub's is the same.
	KeyRetention = 24 * time.Hour
)

// Kind identifies a history's file in package store.
const Kind = "history"

// Options configure a History. Store and Time are required.
type Options struct {
	Store      store.Store        // closed by Close
	Time       clock.PassiveClock // the API server's
	Clock      clock.WithTicker
	Retention  time.Duration
	MaxRecords int
	Metrics    prometheus.Registerer // nil: none
	Log        logr.Logger
}

// History keeps records. Its methods are safe for concurrent use.
type History struct {
	opts    Options
	metrics *metrics
	queue   chan *request
	quit    chan struct{}
	done    chan struct{}
	once    sync.Once

	mu      sync.RWMutex
	index   index
	file    string                                       // the name of the store's file
	seen    map[string]uint64                            // read position in each replica's log, by file
	grown   chan struct{}                                // closed when there is a new record
	confirm func(ctx context.Context, upTo uint64) error // waits for copies; nil if there are none
	tell    func(sent []string)                          // tells the replicas with copies which records the hub has stored
}

// Open reads the store. The history accepts records until Close.
func Open(ctx context.Context, opts Options) (*History, error) {
	if opts.Store == nil || opts.Time == nil {
		return nil, errors.New("history needs a store and the server's time")
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Retention <= 0 {
		opts.Retention = DefaultRetention
	}
	if opts.MaxRecords <= 0 {
		opts.MaxRecords = DefaultMaxRecords
	}
	h := &History{
		opts: opts, index: newIndex(), seen: map[string]uint64{}, grown: make(chan struct{}),
		queue: make(chan *request, maxBatch), quit: make(chan struct{}), done: make(chan struct{}),
	}
	if err := h.load(ctx); err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	var err error
	if h.metrics, err = newMetrics(opts.Metrics, h); err != nil {
		return nil, fmt.Errorf("registering metrics of the history: %w", err)
	}
	go h.run()
	return h, nil
}

// Close finishes the writes under way, and closes the store.
func (h *History) Close() error {
	h.once.Do(func() { close(h.quit) })
	<-h.done
	return h.opts.Store.Close()
}

// Record is a sandbox that has ended, and its claim key.
type Record struct {
	Sandbox *sandboxv1.Sandbox
	KeyHash string // empty if the record stands for no claim key
	Attempt int32
	Proof   string // the hub's proof that it sent the attempt
	ForHub  bool   // the hub's key; the hub must store the record
}

// Keep returns nil when the record is durable here and on the replicas that follow. fresh is false if the sandbox already had a record.
func (h *History) Keep(ctx context.Context, r Record) (fresh bool, err error) {
	id := r.Sandbox.GetId()
	if !h.Has(id) {
		e := entry{
			note: note{ID: id, Hash: r.KeyHash, Attempt: r.Attempt, Proof: r.Proof, At: h.opts.Time.Now().Unix(), ForHub: r.ForHub},
			ended: &federationv1.EndedSandbox{
				Sandbox: r.Sandbox, KeyHash: r.KeyHash, Attempt: r.Attempt, Proof: r.Proof, RecordedAt: timestamppb.New(h.opts.Time.Now()),
			},
		}
		kept, err := h.write(ctx, &request{entries: []entry{e}})
		if err != nil {
			return false, fmt.Errorf("keeping the record of sandbox %s: %w", id, err)
		}
		fresh = kept > 0
	}
	if err := h.confirmed(ctx, id); err != nil {
		return fresh, fmt.Errorf("copying the record of sandbox %s: %w", id, err)
	}
	return fresh, nil
}

func (h *History) confirmed(ctx context.Context, id string) error {
	h.mu.RLock()
	upTo, confirm := h.index.numbers[id], h.confirm
	h.mu.RUnlock()
	if confirm == nil {
		return nil
	}
	return confirm(ctx, upTo)
}

// Has reports whether a sandbox has a record.
func (h *History) Has(id string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	_, ok := h.index.numbers[id]
	return ok
}

// Len returns the number of records.
func (h *History) Len() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.index.numbers)
}

// Get returns the record of a sandbox, or nil if there is none.
func (h *History) Get(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	if !h.Has(id) {
		return nil, nil
	}
	ended, err := h.read(ctx, id)
	return ended.GetSandbox(), err
}

// read returns nil for a record that has been dropped.
func (h *History) read(ctx context.Context, id string) (*federationv1.EndedSandbox, error) {
	e, ok, err := h.opts.Store.Get(ctx, recordPrefix+id)
	if err != nil || !ok {
		return nil, wrapRead(id, err)
	}
	ended := &federationv1.EndedSandbox{}
	return ended, wrapRead(id, proto.Unmarshal(e.Value, ended))
}

func wrapRead(id string, err error) error {
	if err != nil {
		return fmt.Errorf("reading the record of sandbox %s: %w", id, err)
	}
	return nil
}

// Key is a claim key whose sandbox has ended.
type Key struct {
	Hash    string
	ID      string
	Attempt int32
	Proof   string
	ForHub  bool
}

// ByKey returns the latest attempt of a claim key. It returns false if the key is unknown or expired.
func (h *History) ByKey(hash string) (Key, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	k, ok := h.index.keys[hash]
	if !ok || hash == "" || !k.known(h.opts.Time.Since) {
		return Key{}, false
	}
	return Key{hash, k.ID, k.Attempt, k.Proof, k.ForHub}, true
}

// Keys lists the latest attempt of every claim key.
func (h *History) Keys() []Key {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var out []Key
	for hash, k := range h.index.keys {
		if k.known(h.opts.Time.Since) {
			out = append(out, Key{hash, k.ID, k.Attempt, k.Proof, k.ForHub})
		}
	}
	return out
}

// Unsent returns how many records the hub has not stored yet.
func (h *History) Unsent() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.index.unsent)
}

// ToSend returns the oldest records that the hub has not stored yet, at most the given number, and the number that acknowledges them.
func (h *History) ToSend(ctx context.Context, most int) (upTo uint64, records []*federationv1.EndedSandbox, err error) {
	h.mu.RLock()
	var notes []numbered
	for _, number := range h.index.unsent[:min(most, len(h.index.unsent))] {
		notes = append(notes, numbered{number, h.index.notes[number]})
	}
	h.mu.RUnlock()
	for _, n := range notes {
		ended, err := h.read(ctx, n.note.ID)
		if err != nil {
			return upTo, records, err
		}
		if ended != nil {
			records = append(records, ended)
		}
		upTo = n.number
	}
	return upTo, records, nil
}

// Sent records that the hub has stored the records up to a number. It does not wait for a write, because a record that is sent twice does
// no harm.
func (h *History) Sent(upTo uint64) {
	h.mu.Lock()
	var ids []string
	for _, number := range h.index.unsent {
		if number <= upTo {
			ids = append(ids, h.index.notes[number].ID)
		}
	}
	tell := h.tell
	h.mu.Unlock()
	h.sent(ids)
	if tell != nil && len(ids) > 0 {
		tell(ids)
	}
}
