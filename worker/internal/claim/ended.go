// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// endedStore remembers sandboxes that have ended, and holds the records that the hub has not stored yet.
type endedStore struct {
	records *memory[*endedRecord] // by sandbox id
	keys    map[string]string     // key hash to the id of the latest attempt's sandbox

	outbox []*federationv1.EndedSandbox // oldest first
	gone   uint64                       // how many have left the outbox; the next one's number less one
}

type endedRecord struct {
	sandbox *sandboxv1.Sandbox // not changed once here
	hash    string
	attempt int32
}

func newEndedStore() *endedStore {
	store := &endedStore{records: newMemory[*endedRecord](endedMemory, maxEnded), keys: map[string]string{}}
	store.records.onDrop = func(id string, r *endedRecord) {
		if store.keys[r.hash] == id {
			delete(store.keys, r.hash)
		}
	}
	return store
}

func (e *endedStore) has(now time.Time, id string) bool { return e.get(now, id) != nil }

func (e *endedStore) get(now time.Time, id string) *sandboxv1.Sandbox {
	if r, ok := e.records.get(now, id); ok {
		return r.sandbox
	}
	return nil
}

// byKey answers the record of the latest attempt of a key.
func (e *endedStore) byKey(now time.Time, hash string) (*sandboxv1.Sandbox, int32) {
	if r, ok := e.records.get(now, e.keys[hash]); ok {
		return r.sandbox, r.attempt
	}
	return nil, 0
}

func (e *endedStore) put(now time.Time, r *endedRecord) {
	e.records.put(now, r.sandbox.GetId(), r)
	if r.hash == "" {
		return
	}
	// The first record of an attempt stands: what ends later under it was never answered.
	if _, attempt := e.byKey(now, r.hash); attempt < r.attempt {
		e.keys[r.hash] = r.sandbox.GetId()
	}
}

// send queues a record for the hub. When the hub stays away, the oldest give way.
func (e *endedStore) send(record *federationv1.EndedSandbox) {
	if len(e.outbox) >= maxEnded {
		e.dropOldest()
	}
	e.outbox = append(e.outbox, record)
}

func (e *endedStore) dropOldest() {
	e.outbox[0] = nil
	e.outbox = e.outbox[1:]
	e.gone++
}

// ErrEnding says that this process is about to end.
var ErrEnding = errors.New("the worker is ending; the next one records what ends now")

// CloseBooks keeps records from being lost with the process, which is about to end: it takes no more of them, and the Pods
// that they are of stay as they are until another leader records them.
func (s *Service) CloseBooks() {
	s.mu.Lock()
	defer s.unlock()
	s.closed = true
}

// Ended keeps the terminal record of a sandbox. The pool reconciler calls it before it lets the Pod, or the identity on
// it, go; a second record of one sandbox changes nothing.
func (s *Service) Ended(_ context.Context, record *sandboxv1.Sandbox, keyHash string, attempt int32) error {
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return ErrEnding
	}
	s.recordEnd(record, sandbox.State{
		KeyHash: keyHash, Attempt: attempt, Team: record.GetTeam(), Key: record.GetClaimKey(),
	})
	return nil
}

// recordEnd keeps the first record of a sandbox. The lock is held.
func (s *Service) recordEnd(record *sandboxv1.Sandbox, state sandbox.State) {
	now := s.opts.Clock.Now()
	if record == nil || s.ended.has(now, record.GetId()) {
		return
	}
	if s.unanswered(now, record.GetId(), &state) {
		state.KeyHash = ""
	}
	s.ended.put(now, &endedRecord{sandbox: record, hash: state.KeyHash, attempt: state.Attempt})
	s.waits.Changed(record.GetId())
	s.metrics.hasEnded(record.GetStopReason(), record.GetFailureReason())
	if state.KeyHash == "" || s.isLocal(record.GetNamespace(), &state) {
		return
	}
	s.ended.send(&federationv1.EndedSandbox{
		Sandbox: record, KeyHash: state.KeyHash, Attempt: state.Attempt, RecordedAt: timestamppb.New(s.opts.Time.Now()),
	})
	s.news = true
}

// unanswered reports whether a sandbox with a key ends beside the one that was answered for it: its record must not stand
// for the key, neither here nor at the hub (I2). The lock is held.
func (s *Service) unanswered(now time.Time, id string, state *sandbox.State) bool {
	if state.KeyHash == "" {
		return false
	}
	if _, stray := s.strays.get(now, id); stray {
		return true
	}
	stays := s.holder(state.KeyHash)
	return stays != nil && stays.id != id && sandbox.Read(stays.pod).Attempt == state.Attempt
}

// OnEnded calls f whenever there is a new record for the hub. f must not block. Call OnEnded before Watch.
func (s *Service) OnEnded(f func()) {
	s.mu.Lock()
	defer s.unlock()
	s.onEnded = append(s.onEnded, f)
}

// TakeEnded answers up to most records that the hub has not acknowledged, oldest first, and the number to acknowledge
// them by. Until then they are answered again.
func (s *Service) TakeEnded(most int) (batch uint64, records []*federationv1.EndedSandbox) {
	s.mu.Lock()
	defer s.unlock()
	records = slices.Clone(s.ended.outbox[:min(most, len(s.ended.outbox))])
	return s.ended.gone + uint64(len(records)), records
}

// AckEnded drops the records up to a number that TakeEnded answered: the hub has stored them.
func (s *Service) AckEnded(batch uint64) {
	s.mu.Lock()
	defer s.unlock()
	for s.ended.gone < batch && len(s.ended.outbox) > 0 {
		s.ended.dropOldest()
	}
}
