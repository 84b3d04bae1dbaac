// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/store"
)

const (
	maxBatch = 256
	// sweepEvery is how often expired records are dropped. Surplus records are dropped with the next write.
	sweepEvery = time.Minute
	sweepMost  = 500
)

// ErrClosed means that the history was closed before the record was written.
var ErrClosed = errors.New("the history is closed")

type entry struct {
	note  note
	ended *federationv1.EndedSandbox
	sent  bool // the hub has already stored it
}

// request is a write. Its caller waits unless done is nil.
type request struct {
	entries []entry
	sent    []string // ids of records that the hub has stored
	from    string   // the file of the replica that sent the entries
	upTo    uint64   // read position in its log after the entries
	done    chan written
}

type written struct {
	kept int // new records
	err  error
}

// write waits until a request has been carried out.
func (h *History) write(ctx context.Context, r *request) (kept int, err error) {
	r.done = make(chan written, 1)
	select {
	case h.queue <- r:
	case <-h.quit:
		return 0, ErrClosed
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case w := <-r.done:
		return w.kept, w.err
	case <-h.done:
		select {
		case w := <-r.done:
			return w.kept, w.err
		default:
			return 0, ErrClosed
		}
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// sent marks records as stored by the hub, in memory immediately. It does not wait for the write.
func (h *History) sent(ids []string) {
	if len(ids) == 0 {
		return
	}
	h.mu.Lock()
	h.index.sent(h.index.numbersOf(ids))
	h.mu.Unlock()
	select {
	case h.queue <- &request{sent: ids}:
	default: // the next process sends them again
	}
}

func (h *History) run() {
	defer close(h.done)
	ctx := context.Background() // a write is followed to its end
	ticker := h.opts.Clock.NewTicker(sweepEvery)
	defer ticker.Stop()
	doubt := false // the outcome of the last write is unknown
	for {
		var batch []*request
		select {
		case r := <-h.queue:
			batch = h.gather(append(batch, r))
		case <-ticker.C():
		case <-h.quit:
			if batch = h.gather(nil); len(batch) == 0 {
				return
			}
		}
		if doubt {
			if err := h.load(ctx); err != nil {
				answer(batch, nil, err)
				continue
			}
			h.mu.Lock()
			h.announce() // the write may have been carried out
			h.mu.Unlock()
			doubt = false
		}
		if err := h.commit(ctx, batch); err != nil {
			doubt = true
			continue
		}
		if err := h.sweep(ctx); err != nil {
			doubt = true
			h.opts.Log.Error(err, "Cannot drop old records")
		}
	}
}

func (h *History) gather(batch []*request) []*request {
	for len(batch) < maxBatch {
		select {
		case r := <-h.queue:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

func answer(batch []*request, kept []int, err error) {
	for i, r := range batch {
		if r.done == nil {
			continue
		}
		w := written{err: err}
		if err == nil {
			w.kept = kept[i]
		}
		r.done <- w
	}
}

// commit writes a batch atomically. It assigns the numbers, so that the log has no gap that is filled later: a reader that continues from a
// number misses no record.
func (h *History) commit(ctx context.Context, batch []*request) error {
	var txn store.Txn
	var fresh []numbered
	waits := map[uint64]bool{}
	kept := make([]int, len(batch))
	taken, cursors := map[string]bool{}, map[string]uint64{}
	number := h.index.last
	for i, r := range batch {
		for _, e := range r.entries {
			if taken[e.note.ID] || h.Has(e.note.ID) {
				continue
			}
			number++
			puts, err := e.puts(number)
			if err != nil {
				answer(batch[i:i+1], nil, err)
				r.done = nil
				continue
			}
			taken[e.note.ID] = true
			txn.Puts = append(txn.Puts, puts...)
			fresh, waits[number] = append(fresh, numbered{number, e.note}), e.note.ForHub && !e.sent
			kept[i]++
		}
		txn.Deletes = append(txn.Deletes, h.outKeys(r.sent)...)
		if r.from != "" {
			cursors[r.from] = r.upTo
		}
	}
	for file, upTo := range cursors {
		txn.Puts = append(txn.Puts, store.Put{Key: peerPrefix + file, Value: []byte(number16(upTo))})
	}
	slices.Sort(txn.Deletes)
	txn.Deletes = slices.Compact(txn.Deletes)
	start := h.opts.Clock.Now()
	if len(txn.Puts)+len(txn.Deletes) > 0 {
		if _, err := h.opts.Store.Commit(ctx, txn); err != nil {
			h.metrics.failed()
			answer(batch, nil, err)
			return err
		}
		h.metrics.wrote(h.opts.Clock.Since(start))
	}
	h.mu.Lock()
	for _, n := range fresh {
		h.index.add(n, waits[n.number])
	}
	maps.Copy(h.seen, cursors)
	if len(fresh) > 0 {
		h.announce()
	}
	h.mu.Unlock()
	answer(batch, kept, nil)
	return nil
}

// announce wakes the sessions that wait for new records. The caller holds the lock.
func (h *History) announce() {
	close(h.grown)
	h.grown = make(chan struct{})
}

func (h *History) outKeys(ids []string) (keys []string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, number := range h.index.numbersOf(ids) {
		keys = append(keys, outKey(number))
	}
	return keys
}

func (e *entry) puts(number uint64) ([]store.Put, error) {
	record, err := encode(e.ended)
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(e.note)
	if err != nil {
		return nil, err
	}
	puts := []store.Put{{Key: recordPrefix + e.note.ID, Value: record}, {Key: logKey(number), Value: line}}
	if e.note.ForHub && !e.sent {
		puts = append(puts, store.Put{Key: outKey(number)})
	}
	return puts, nil
}

// encode encodes a record, whatever text its Pod contained. A record that could not be written would keep the Pod forever.
func encode(ended *federationv1.EndedSandbox) ([]byte, error) {
	data, err := proto.Marshal(ended)
	if err == nil {
		return data, nil
	}
	clean := proto.CloneOf(ended)
	toValidUTF8(clean.GetSandbox())
	return proto.Marshal(clean)
}

// sweep drops expired and surplus records, oldest first.
func (h *History) sweep(ctx context.Context) error {
	for {
		due := h.due()
		if len(due) == 0 {
			return nil
		}
		// The highest number is stored beyond its record's life, so that it is never used again.
		txn := store.Txn{Puts: []store.Put{{Key: seqKey, Value: []byte(number16(h.index.last))}}}
		for _, n := range due {
			txn.Deletes = append(txn.Deletes, recordPrefix+n.note.ID, logKey(n.number), outKey(n.number))
		}
		if _, err := h.opts.Store.Commit(ctx, txn); err != nil {
			return err
		}
		h.mu.Lock()
		for _, n := range due {
			h.index.drop(n.number)
		}
		h.mu.Unlock()
		h.metrics.dropped.Add(float64(len(due)))
	}
}

// due returns the oldest records that must be dropped.
func (h *History) due() (out []numbered) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	over := len(h.index.notes) - h.opts.MaxRecords
	if over > 0 {
		over += h.opts.MaxRecords / 100 // otherwise every record would cost another write
	}
	for number := h.index.first; number <= h.index.last && len(out) < sweepMost; number++ {
		n, ok := h.index.notes[number]
		if !ok {
			continue
		}
		if len(out) >= over && h.opts.Time.Since(time.Unix(n.At, 0)) <= h.opts.Retention {
			break
		}
		out = append(out, numbered{number, n})
	}
	return out
}
