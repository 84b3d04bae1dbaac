// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/memory"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// These bound the records that are only in memory.
	endedMemory = 7 * 24 * time.Hour
	maxEnded    = 100_000
	// keepAgain is the pause between two tries to store a record that no Pod shows any more; it grows to maxKeepAgain.
	keepAgain    = 200 * time.Millisecond
	maxKeepAgain = 10 * time.Second
	// recordPatience is how long a release waits for its record.
	recordPatience = time.Second
)

// endedStore holds the records of sandboxes whose Pods are gone before the history has a record: Pods that were removed by force and, on a
// follower without a copy of the leader's history, all Pods that it saw go.
type endedStore struct {
	records *memory.Map[history.Record] // by sandbox id
	keys    map[string]string           // key hash to the id of the latest attempt's sandbox
}

func newEndedStore() *endedStore {
	store := &endedStore{keys: map[string]string{}}
	store.records = memory.New(endedMemory, maxEnded, func(id string, r history.Record) {
		if store.keys[r.KeyHash] == id {
			delete(store.keys, r.KeyHash)
		}
	})
	return store
}

func (e *endedStore) get(now time.Time, id string) *sandboxv1.Sandbox {
	r, _ := e.records.Get(now, id)
	return r.Sandbox
}

// byKey returns the record of the latest attempt of a key.
func (e *endedStore) byKey(now time.Time, hash string) (history.Record, bool) {
	return e.records.Get(now, e.keys[hash])
}

func (e *endedStore) put(now time.Time, r history.Record) {
	e.records.Put(now, r.Sandbox.GetId(), r)
	if r.KeyHash == "" {
		return
	}
	// The first record of an attempt counts; a later sandbox of the attempt was never acknowledged.
	if latest, _ := e.byKey(now, r.KeyHash); latest.Attempt < r.Attempt {
		e.keys[r.KeyHash] = r.Sandbox.GetId()
	}
}

// ErrEnding means that this process is about to end.
var ErrEnding = errors.New("the worker is ending; the next one records what ends now")

// StopRecording stops new records when the process is about to end. Their Pods stay as they are until another leader records them.
func (s *Service) StopRecording() { s.update(func(l locked) { l.stopped = true }) }

// Ended stores the terminal record of a sandbox. The pool reconciler calls it before it removes the Pod, or the identity on it, and removes
// it only if Ended returns nil: then the record is durable. A second record of one sandbox changes nothing.
func (s *Service) Ended(ctx context.Context, record *sandboxv1.Sandbox, of sandbox.Claim) error {
	var stopped bool
	var r history.Record
	s.update(func(l locked) {
		stopped = l.stopped
		r = s.recordOf(&l.View, record, of)
	})
	if stopped {
		return ErrEnding
	}
	return s.keep(ctx, r)
}

// Released returns the termination for which this process has deleted a Pod, or nil.
func (s *Service) Released(pod types.UID) (t *sandbox.Termination) {
	s.inventory.View(func(v *inventory.View) {
		if p := v.Pod(pod); p != nil {
			t = p.Released()
		}
	})
	return t
}

// recordReleased stores the record of a sandbox whose Pod this process has deleted, before its caller's call returns: another leader would
// not know why it ended. If that takes long, as with a full disk, or if the process is about to end, recordReleased writes the end on the
// Pod instead. The pool reconciler then stores the record, here or at the next leader.
func (s *Service) recordReleased(ctx context.Context, id string) {
	var pod *corev1.Pod
	var why *sandbox.Termination
	kept := make(chan error, 1)
	s.update(func(l locked) {
		p := l.Sandbox(id)
		if p == nil || p.Live() || p.Released() == nil || l.opts.History.Has(id) {
			return
		}
		pod, why = p.Object(), p.Released()
		if l.stopped || !l.Lasts() {
			kept <- ErrEnding
			return
		}
		record := sandbox.TerminalRecord(pod, p.Pool().Runtimes(), l.clusterID, why.At, why)
		r := s.recordOf(&l.View, record, sandbox.Read(pod).Claim)
		l.Go(func(ctx context.Context) { kept <- s.keep(ctx, r) })
	})
	if pod == nil {
		return
	}
	timer := s.clock.NewTimer(recordPatience)
	defer timer.Stop()
	select {
	case err := <-kept:
		if err == nil && !s.isStopped() {
			return
		}
	case <-timer.C():
	}
	s.opts.Log.Info("A released sandbox may have no record yet; its Pod shows its end", "sandbox", id, "pod", pod.Name)
	patch := sandbox.ReleasePatch(pod, &v1alpha1.SandboxPoolSpec{}, why.End, why.At)
	got, err := s.inventory.Write(context.WithoutCancel(ctx), id, pod, patch)
	if err != nil && got != inventory.Lost && got != inventory.NoPod { // Lost or NoPod: the pool reconciler was faster
		s.opts.Log.Error(err, "Could not write the end of a sandbox on its Pod", "sandbox", id, "pod", pod.Name)
	}
}

func (s *Service) isStopped() (stopped bool) {
	s.inventory.View(func(v *inventory.View) { stopped = s.guarded.In(v).stopped })
	return stopped
}

// recordStripped records the sandbox of a Pod that no longer shows it. Most such sandboxes already have a record. One whose labels were
// removed manually has none.
func (l locked) recordStripped(c *inventory.Change) {
	if l.opts.History.Has(c.Sandbox) {
		return
	}
	state := sandbox.Read(c.Before)
	record := sandbox.TerminalRecord(c.Before, c.Pod.Pool().Runtimes(), l.clusterID, l.time.Now(), nil)
	if state.End.StopReason == "" {
		record.StopReason = string(v1alpha1.SandboxStopReasonFailed)
		record.FailureReason, record.FailureMessage = "IdentityLost", "its id was removed from its Pod"
	}
	l.recordVanished(record, state.Claim)
}

// recordVanished records the sandbox of a Pod that is gone without a record.
func (l locked) recordVanished(record *sandboxv1.Sandbox, of sandbox.Claim) {
	now := l.clock.Now()
	if record == nil || l.opts.History.Has(record.GetId()) || l.ended.get(now, record.GetId()) != nil {
		return
	}
	l.ended.put(now, l.recordOf(&l.View, record, of))
	l.wake(record.GetId())
	l.keepVanished()
}

// keepVanished stores the records of vanished sandboxes. No later event would trigger it again, so it retries until they are durable, or
// until this process ends.
func (l locked) keepVanished() {
	if l.Leading() == nil || l.keeping || l.ended.records.Len() == 0 {
		return
	}
	l.keeping = true
	s := l.Service
	l.Go(func(ctx context.Context) {
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
			if wallclock.Sleep(ctx, s.clock, wait) != nil {
				s.update(func(l locked) { l.keeping = false })
				return
			}
			wait = min(2*wait, maxKeepAgain)
		}
	})
}

func (s *Service) nextVanished() (r history.Record, ok bool) {
	s.update(func(l locked) {
		r, ok = l.ended.records.Oldest(s.clock.Now())
		l.keeping = ok // under the lock with which none was found, so the next record starts a new goroutine
	})
	return r, ok
}

// keep stores a record durably.
func (s *Service) keep(ctx context.Context, r history.Record) error {
	fresh, err := s.opts.History.Keep(ctx, r)
	s.update(func(l locked) {
		if err == nil {
			l.ended.records.Remove(r.Sandbox.GetId())
			l.wake(r.Sandbox.GetId())
		}
		if !fresh { // false at the second try of a record whose copy failed
			return
		}
		s.metrics.hasEnded(r.Sandbox.GetStopReason(), r.Sandbox.GetFailureReason())
		if r.ForHub {
			for _, f := range l.onEnded {
				l.After(f)
			}
		}
	})
	return err
}

// recordOf returns a history record, with the claim key that it stands for.
func (s *Service) recordOf(v *inventory.View, record *sandboxv1.Sandbox, of sandbox.Claim) history.Record {
	if unacknowledged(v, record.GetId(), &of) {
		of.KeyHash = ""
	}
	return history.Record{
		Sandbox: record, KeyHash: of.KeyHash, Attempt: of.Attempt, Proof: of.Proof,
		ForHub: of.KeyHash != "" && !s.IsLocal(record.GetNamespace(), &of),
	}
}

// unacknowledged reports whether another sandbox than this one was returned for its key. The record of this one must then not stand for the
// key, neither here nor at the hub (I2).
func unacknowledged(v *inventory.View, id string, of *sandbox.Claim) bool {
	if of.KeyHash == "" {
		return false
	}
	if v.Disowned(id) {
		return true
	}
	stays := v.Holder(of.KeyHash)
	return stays != nil && stays.Sandbox() != id && sandbox.Read(stays.Object()).Attempt == of.Attempt
}

// IsLocal reports whether a key is of this worker's own API.
func (s *Service) IsLocal(namespace string, of *sandbox.Claim) bool {
	return of.KeyHash == sandbox.LocalKeyHash(of.Team, namespace, of.Key, s.clusterID)
}

// HasEnded reports whether a sandbox has a record.
func (s *Service) HasEnded(id string) bool { return s.opts.History.Has(id) }

// EndedUnder returns the latest sandbox that ended under a claim key. attempt is 0 if there is none.
func (s *Service) EndedUnder(v *inventory.View, hash string) (id string, attempt int32) {
	k, _ := s.opts.History.ByKey(hash)
	if r, ok := s.guarded.In(v).ended.byKey(s.clock.Now(), hash); ok && r.Attempt > k.Attempt {
		return r.Sandbox.GetId(), r.Attempt
	}
	return k.ID, k.Attempt
}

// EndedKeys lists the latest sandbox that ended under each of the hub's keys.
func (s *Service) EndedKeys(v *inventory.View) []*federationv1.KeyHolder {
	var keys []*federationv1.KeyHolder
	add := func(hash, id string, attempt int32, proof string) {
		keys = append(keys, &federationv1.KeyHolder{KeyHash: hash, Attempt: attempt, SandboxId: id, Ended: true, Proof: proof})
	}
	for _, k := range s.opts.History.Keys() {
		if id, _ := s.EndedUnder(v, k.Hash); k.ForHub && id == k.ID {
			add(k.Hash, k.ID, k.Attempt, k.Proof)
		}
	}
	ended := s.guarded.In(v).ended
	for hash, id := range ended.keys {
		if r, ok := ended.byKey(s.clock.Now(), hash); ok && r.ForHub {
			add(r.KeyHash, id, r.Attempt, r.Proof)
		}
	}
	return keys
}

// Recorded returns the record of a sandbox that has ended, or nil for an unknown one. It reads from disk, so never call it with the lock
// held.
func (s *Service) Recorded(ctx context.Context, id string) (record *sandboxv1.Sandbox, err error) {
	s.inventory.View(func(v *inventory.View) { record = s.guarded.In(v).ended.get(s.clock.Now(), id) })
	if record != nil {
		return record, nil
	}
	if record, err = s.opts.History.Get(ctx, id); err != nil {
		return nil, disposition.Doubtful(problem.New(problem.Unavailable, "%w", err).WithRetryAfter(problem.RetrySoon))
	}
	return record, nil
}

// OnEnded registers f, which is called for each new record for the hub. f must not block. Call OnEnded before Watch.
func (s *Service) OnEnded(f func()) { s.update(func(l locked) { l.onEnded = append(l.onEnded, f) }) }

// TakeEnded returns the oldest records that the hub has not acknowledged, at most the given number, and the batch number that acknowledges
// them. Until then it returns them again.
func (s *Service) TakeEnded(most int) (batch uint64, records []*federationv1.EndedSandbox) {
	batch, records, err := s.opts.History.ToSend(context.Background(), most)
	if err != nil {
		s.opts.Log.Error(err, "Cannot read what the hub has to store")
	}
	return batch, records
}

// AckEnded records that the hub has stored the records of a batch and of those before it.
func (s *Service) AckEnded(batch uint64) { s.opts.History.Sent(batch) }
