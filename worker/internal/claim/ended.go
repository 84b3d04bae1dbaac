// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/sandbox"
)

// endedStore holds the records of sandboxes whose Pods are gone before anybody has kept one: of Pods that were removed by
// force and, on a follower without a copy of the leader's history, of all that it saw go.
type endedStore struct {
	records *memory[history.Record] // by sandbox id
	keys    map[string]string       // key hash to the id of the latest attempt's sandbox
}

func newEndedStore() *endedStore {
	store := &endedStore{records: newMemory[history.Record](endedMemory, maxEnded), keys: map[string]string{}}
	store.records.onDrop = func(id string, r history.Record) {
		if store.keys[r.KeyHash] == id {
			delete(store.keys, r.KeyHash)
		}
	}
	return store
}

func (e *endedStore) get(now time.Time, id string) *sandboxv1.Sandbox {
	r, _ := e.records.get(now, id)
	return r.Sandbox
}

// byKey answers the record of the latest attempt of a key.
func (e *endedStore) byKey(now time.Time, hash string) (*sandboxv1.Sandbox, int32) {
	if r, ok := e.records.get(now, e.keys[hash]); ok {
		return r.Sandbox, r.Attempt
	}
	return nil, 0
}

func (e *endedStore) put(now time.Time, r history.Record) {
	e.records.put(now, r.Sandbox.GetId(), r)
	if r.KeyHash == "" {
		return
	}
	// The first record of an attempt stands: what ends later under it was never answered.
	if _, attempt := e.byKey(now, r.KeyHash); attempt < r.Attempt {
		e.keys[r.KeyHash] = r.Sandbox.GetId()
	}
}

// ErrEnding says that this process is about to end.
var ErrEnding = errors.New("the worker is ending; the next one records what ends now")

// StopRecording keeps records from being written while the process ends: it takes no more of them, and the Pods that they are
// of stay as they are until another leader records them.
func (s *Service) StopRecording() {
	s.mu.Lock()
	defer s.unlock()
	s.closed = true
}

// Ended keeps the terminal record of a sandbox. The pool reconciler calls it before it lets the Pod, or the identity on
// it, go, and does so only if the answer is nil: the record is durable then. A second record of one sandbox changes nothing.
func (s *Service) Ended(ctx context.Context, record *sandboxv1.Sandbox, keyHash string, attempt int32) error {
	s.mu.Lock()
	closed := s.closed
	r := s.recordOf(record, sandbox.State{
		KeyHash: keyHash, Attempt: attempt, Team: record.GetTeam(), Key: record.GetClaimKey(),
	})
	s.unlock()
	if closed {
		return ErrEnding
	}
	return s.keep(ctx, r)
}

// recordOf says what a record means for its claim key. The lock is held.
func (s *Service) recordOf(record *sandboxv1.Sandbox, state sandbox.State) history.Record {
	if s.unanswered(s.opts.Clock.Now(), record.GetId(), &state) {
		state.KeyHash = ""
	}
	return history.Record{
		Sandbox: record, KeyHash: state.KeyHash, Attempt: state.Attempt,
		ForHub: state.KeyHash != "" && !s.isLocal(record.GetNamespace(), &state),
	}
}

func (s *Service) keep(ctx context.Context, r history.Record) error {
	fresh, err := s.opts.History.Keep(ctx, r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.unlock()
	s.ended.records.remove(r.Sandbox.GetId())
	s.waits.Changed(r.Sandbox.GetId())
	if fresh {
		s.metrics.hasEnded(r.Sandbox.GetStopReason(), r.Sandbox.GetFailureReason())
		s.news = s.news || r.ForHub
	}
	return nil
}

// vanished takes down the sandbox of a Pod that went without a record. The lock is held.
func (s *Service) vanished(record *sandboxv1.Sandbox, state sandbox.State) {
	if record == nil || s.opts.History.Has(record.GetId()) || s.ended.get(s.opts.Clock.Now(), record.GetId()) != nil {
		return
	}
	s.ended.put(s.opts.Clock.Now(), s.recordOf(record, state))
	s.waits.Changed(record.GetId())
	s.keepVanished()
}

// stripped takes down a sandbox whose Pod shows it no more. Most were recorded before that; one was not if what told of it was
// taken off by hand. The lock is held.
func (s *Service) stripped(id string, was *corev1.Pod, p *pool) {
	if s.opts.History.Has(id) {
		return
	}
	state := sandbox.Read(was)
	record := sandbox.TerminalRecord(was, runtimesOf(p), s.opts.ClusterID, s.opts.Time.Now())
	if state.StopReason == "" {
		record.StopReason = string(v1alpha1.SandboxStopReasonFailed)
		record.FailureReason, record.FailureMessage = "IdentityLost", "its id was taken off its Pod"
	}
	s.vanished(record, state)
}

// keepVanished makes what vanished durable. There is nothing left that would bring it up again, so it is tried until it is,
// or this process ends. The lock is held.
func (s *Service) keepVanished() {
	if s.leading == nil || s.keeping || s.ended.records.len() == 0 {
		return
	}
	s.keeping = true
	s.spawn(func(ctx context.Context) {
		for wait := keepAgain; ; {
			r, ok := s.nextVanished()
			if !ok {
				return
			}
			if err := s.keep(ctx, r); err == nil {
				wait = keepAgain
				continue
			} else if ctx.Err() == nil {
				s.opts.Log.Error(err, "Cannot record a sandbox whose Pod is gone", "sandbox", r.Sandbox.GetId())
			}
			if wallclock.Sleep(ctx, s.opts.Clock, wait) != nil {
				s.stopKeeping()
				return
			}
			wait = min(2*wait, maxKeepAgain)
		}
	})
}

func (s *Service) nextVanished() (history.Record, bool) {
	s.mu.Lock()
	defer s.unlock()
	r, ok := s.ended.records.oldest(s.opts.Clock.Now())
	s.keeping = ok // said under the same lock as that there is none: the next one begins anew
	return r, ok
}

func (s *Service) stopKeeping() {
	s.mu.Lock()
	defer s.unlock()
	s.keeping = false
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

// endedUnder is the sandbox that ended under a claim key; attempt 0 is none. The lock is held.
func (s *Service) endedUnder(hash string) (id string, attempt int32) {
	k, _ := s.opts.History.ByKey(hash)
	if record, attempt := s.ended.byKey(s.opts.Clock.Now(), hash); attempt > k.Attempt {
		return record.GetId(), attempt
	}
	return k.ID, k.Attempt
}

// recorded answers the record of a sandbox that has ended; nil for one that is not known. It reads from a disk, so that the
// lock must not be held.
func (s *Service) recorded(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	s.mu.Lock()
	record := s.ended.get(s.opts.Clock.Now(), id)
	s.unlock()
	if record != nil {
		return record, nil
	}
	record, err := s.opts.History.Get(ctx, id)
	if err != nil {
		return nil, doubtful(problem.New(problem.Unavailable, "%w", err).WithRetryAfter(retrySoon))
	}
	return record, nil
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
	batch, records, err := s.opts.History.ToSend(context.Background(), most)
	if err != nil {
		s.opts.Log.Error(err, "Cannot read what the hub has to store")
	}
	return batch, records
}

// AckEnded takes note that the hub has stored the records up to a number that TakeEnded answered.
func (s *Service) AckEnded(batch uint64) { s.opts.History.Sent(batch) }
