// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"navix.sh/atoll/pkg/store"
)

const (
	recordPrefix = "record/"
	logPrefix    = "log/"
	outPrefix    = "out/"
	seqKey       = "seq"
	fileKey      = "file"
	peerPrefix   = "peer/"
)

// note is the part of a record that is in memory.
type note struct {
	ID      string `json:"id"`
	Hash    string `json:"hash,omitempty"`
	Attempt int32  `json:"attempt,omitempty"`
	Proof   string `json:"proof,omitempty"` // of the hub
	At      int64  `json:"at"`              // when it was recorded, in seconds
	ForHub  bool   `json:"forHub,omitempty"`
	Origin  string `json:"origin,omitempty"` // the file that had it first; empty for this one
}

type numbered struct {
	number uint64
	note   note
}

// heldKey is the latest sandbox of a claim key.
type heldKey struct {
	note
	waits bool // the hub has not stored its record
}

// known reports whether the key still returns its record.
func (k *heldKey) known(since func(time.Time) time.Duration) bool {
	return k.waits || since(time.Unix(k.At, 0)) < KeyRetention
}

// index is the log in memory.
type index struct {
	last    uint64 // the highest number ever used
	first   uint64 // the lowest number that has a note
	numbers map[string]uint64
	notes   map[uint64]note
	keys    map[string]heldKey
	unsent  []uint64 // in order
}

func newIndex() index {
	return index{numbers: map[string]uint64{}, notes: map[uint64]note{}, keys: map[string]heldKey{}}
}

// add adds a note of the log.
func (x *index) add(n numbered, waits bool) {
	x.last = max(x.last, n.number)
	if len(x.notes) == 0 {
		x.first = n.number
	}
	x.numbers[n.note.ID], x.notes[n.number] = n.number, n.note
	if waits {
		x.unsent = append(x.unsent, n.number)
	}
	if n.note.Hash == "" {
		return
	}
	// The first record of an attempt counts, because a later one's sandbox was never returned. An expired key starts again.
	before, ok := x.keys[n.note.Hash]
	if !ok || before.Attempt < n.note.Attempt || !before.known(time.Unix(n.note.At, 0).Sub) {
		x.keys[n.note.Hash] = heldKey{n.note, waits}
	}
}

// sent marks records as stored by the hub.
func (x *index) sent(numbers []uint64) {
	for _, number := range numbers {
		n := x.notes[number]
		if k := x.keys[n.Hash]; n.Hash != "" && k.ID == n.ID {
			k.waits = false
			x.keys[n.Hash] = k
		}
	}
	x.unsent = slices.DeleteFunc(x.unsent, func(number uint64) bool {
		_, found := slices.BinarySearch(numbers, number)
		return found
	})
}

// drop removes a record.
func (x *index) drop(number uint64) {
	n, ok := x.notes[number]
	if !ok {
		return
	}
	x.sent([]uint64{number})
	delete(x.notes, number)
	delete(x.numbers, n.ID)
	for x.first <= x.last && x.notes[x.first].ID == "" {
		x.first++
	}
	if k := x.keys[n.Hash]; k.ID == n.ID {
		delete(x.keys, n.Hash)
	}
}

func (x *index) numbersOf(ids []string) (numbers []uint64) {
	for _, id := range ids {
		if n, ok := x.numbers[id]; ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

func number16(number uint64) string { return fmt.Sprintf("%016x", number) }
func logKey(number uint64) string   { return logPrefix + number16(number) }
func outKey(number uint64) string   { return outPrefix + number16(number) }

func parseNumber(key, prefix string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(key, prefix), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("entry %q of the history is damaged: %w", key, err)
	}
	return n, nil
}

// load reads the notes of the log that the index lacks: initially all, and later those of a write with an unclear outcome.
func (h *History) load(ctx context.Context) error {
	s := h.opts.Store
	if err := h.loadFile(ctx); err != nil {
		return err
	}
	if e, ok, err := s.Get(ctx, seqKey); err != nil {
		return err
	} else if ok {
		n, err := parseNumber(string(e.Value), "")
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.index.last = max(h.index.last, n)
		h.mu.Unlock()
	}
	waits := map[uint64]bool{}
	err := each(ctx, s, outPrefix, outKey(h.highest()), func(e store.Entry) error {
		n, err := parseNumber(e.Key, outPrefix)
		waits[n] = true
		return err
	})
	if err != nil {
		return err
	}
	return each(ctx, s, logPrefix, logKey(h.highest()), func(e store.Entry) error {
		n, err := parseNumber(e.Key, logPrefix)
		if err != nil {
			return err
		}
		found := numbered{number: n}
		if err := json.Unmarshal(e.Value, &found.note); err != nil {
			return fmt.Errorf("entry %q of the history is damaged: %w", e.Key, err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.index.add(found, waits[n])
		return nil
	})
}

// highest returns the highest number in the index.
func (h *History) highest() (n uint64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.index.notes) == 0 {
		return 0
	}
	return h.index.last
}

// each visits the entries below a prefix and after a key.
func each(ctx context.Context, s store.Store, prefix, after string, visit func(store.Entry) error) error {
	for {
		entries, err := s.Range(ctx, prefix, after, loadPage)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := visit(e); err != nil {
				return err
			}
		}
		if len(entries) < loadPage {
			return nil
		}
		after = entries[len(entries)-1].Key
	}
}

const loadPage = 1000
