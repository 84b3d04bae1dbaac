// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/store"
)

const (
	copyBatch = 256
	copyBytes = 512 << 10
	// maxPeers bounds the number of other files whose read position is kept. Every Pod of the worker has a new file.
	maxPeers = 64
)

var errNoRecord = errors.New("a replica sent a record of nothing")

// loadFile reads the name of this file and the read positions of other files. It chooses a name if there is none.
func (h *History) loadFile(ctx context.Context) error {
	if h.file != "" {
		return nil
	}
	s := h.opts.Store
	e, ok, err := s.Get(ctx, fileKey)
	if err != nil {
		return err
	}
	if !ok {
		e.Value = []byte(strings.ToLower(rand.Text()))
		if _, err := s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: fileKey, Value: e.Value}}}); err != nil {
			return fmt.Errorf("naming the file: %w", err)
		}
	}
	h.file = string(e.Value)
	var known []string
	err = each(ctx, s, peerPrefix, "", func(e store.Entry) error {
		n, err := parseNumber(string(e.Value), "")
		known, h.seen[strings.TrimPrefix(e.Key, peerPrefix)] = append(known, e.Key), n
		return err
	})
	if err != nil || len(known) <= maxPeers {
		return err
	}
	clear(h.seen) // their logs are read again from the start, which adds no duplicates
	_, err = s.Commit(ctx, store.Txn{Deletes: known})
	return err
}

// upTo returns the position up to which another file's log was read.
func (h *History) upTo(file string) uint64 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.seen[file]
}

// highestAndGrown returns the highest number, and a channel that is closed when a higher one exists.
func (h *History) highestAndGrown() (last uint64, grown <-chan struct{}) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.index.last, h.grown
}

// since returns the records after a number in the log, up to the size of one message, for a replica with another file. If the number was
// never used, it belongs to a log that was lost; then the result is the whole log.
func (h *History) since(ctx context.Context, number uint64, file string) (*federationv1.CopyRecords, error) {
	notes, waits, last := h.notesSince(number)
	out := &federationv1.CopyRecords{UpTo: last}
	if len(notes) > 0 {
		out.UpTo = notes[len(notes)-1].number
	}
	out.More = out.UpTo < last
	size := 0
	for i, n := range notes {
		if n.note.Origin == file {
			continue
		}
		ended, err := h.read(ctx, n.note.ID)
		if err != nil {
			return nil, err
		}
		if ended == nil {
			continue // dropped
		}
		if size += proto.Size(ended); size > copyBytes && len(out.GetRecords()) > 0 {
			out.UpTo, out.More = notes[i-1].number, true
			return out, nil
		}
		origin := n.note.Origin
		if origin == "" {
			origin = h.file
		}
		out.Records = append(out.Records, &federationv1.CopyRecord{
			Ended: ended, ForHub: n.note.ForHub, Sent: n.note.ForHub && !waits[n.number], Origin: origin,
		})
	}
	return out, nil
}

func (h *History) notesSince(number uint64) (notes []numbered, waits map[uint64]bool, last uint64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if last = h.index.last; number > last {
		number = 0
	}
	waits = map[uint64]bool{}
	for n := max(number+1, h.index.first); n <= last && len(notes) < copyBatch; n++ {
		note, ok := h.index.notes[n]
		if !ok {
			continue
		}
		notes = append(notes, numbered{n, note})
		_, waits[n] = slices.BinarySearch(h.index.unsent, n)
	}
	return notes, waits, last
}

// take stores copies durably, together with the read position of the other file.
func (h *History) take(ctx context.Context, file string, records *federationv1.CopyRecords) error {
	r := &request{from: file, upTo: records.GetUpTo()}
	var sent []string
	for _, c := range records.GetRecords() {
		e := c.GetEnded()
		id := e.GetSandbox().GetId()
		if id == "" {
			return errNoRecord
		}
		if c.GetSent() {
			sent = append(sent, id)
		}
		r.entries = append(r.entries, entry{
			note: note{
				ID: id, Hash: e.GetKeyHash(), Attempt: e.GetAttempt(), Proof: e.GetProof(), At: e.GetRecordedAt().GetSeconds(),
				ForHub: c.GetForHub(), Origin: c.GetOrigin(),
			},
			ended: e, sent: c.GetSent(),
		})
	}
	if _, err := h.write(ctx, r); err != nil {
		return err
	}
	h.sent(sent) // of those that already existed here
	return nil
}

// unsentIDs returns the sandboxes whose record the hub has not stored, to this replica's knowledge.
func (h *History) unsentIDs() (ids []string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, number := range h.index.unsent {
		ids = append(ids, h.index.notes[number].ID)
	}
	return ids
}

// sentOf returns those of the given sandboxes whose record the hub has stored, to this replica's knowledge.
func (h *History) sentOf(ids []string) (sent []string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, id := range ids {
		number, ok := h.index.numbers[id]
		if !ok {
			continue
		}
		if _, waits := slices.BinarySearch(h.index.unsent, number); !waits {
			sent = append(sent, id)
		}
	}
	return sent
}
