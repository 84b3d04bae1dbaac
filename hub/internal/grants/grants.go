// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/encoding/protojson"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/chanmutex"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/store"
)

const (
	prefix     = "access/"
	policyKey  = prefix + "policy"
	keyPrefix  = prefix + "key/"
	usedPrefix = "access-used/"

	// flushEvery is the interval at which last uses are written, at most flushMost in a transaction.
	flushEvery = time.Minute
	flushMost  = 100
)

// File is the keys of --api-keys-file.
type File interface {
	// Shown returns the keys for a list.
	Shown() []*sandboxv1.ApiKey
	// Identity returns the identity of a key's caller, or nil if the file has no such key.
	Identity(name string) *access.Identity
}

// Options configure a Service.
type Options struct {
	Store store.Store
	File  File // nil: there is none
	// Authorizer decides the questions of callers about their own permissions; nil: the policy.
	Authorizer access.Authorizer
	Live       func() int // replicas that serve, this one included; nil: one
	Usage      Usage
	Clock      clock.WithTicker
	Log        logr.Logger
}

// Service keeps keys, policy and limits.
type Service struct {
	opts    Options
	state   atomic.Pointer[state]
	changed chan struct{}

	writing chanmutex.Mutex // held during a commit and its application: own writes are applied in the order of their commits

	mu   sync.Mutex // guards changes of the state; a change is applied only after its commit
	used uses

	limiter limiter
}

// state is this replica's copy of the store. It is immutable.
type state struct {
	keys     map[string]*record // by name
	byDigest map[string]*record // by digest of the token, including old tokens
	policy   *access.Policy
	stored   *sandboxv1.AccessPolicy // nil: none
	revision uint64                  // of its entry
	teams    map[string]*limits

	floor   uint64            // the state has every change of the store up to this revision
	deleted map[string]uint64 // revisions of own deletions that are later than floor, by key of the entry
}

// New returns a Service that has loaded the store.
func New(ctx context.Context, o Options) (*Service, error) {
	s := &Service{opts: o, changed: make(chan struct{}, 1), used: newUses(), limiter: newLimiter(o.Clock)}
	if s.opts.Authorizer == nil {
		s.opts.Authorizer = s
	}
	if s.opts.Live == nil {
		s.opts.Live = func() int { return 1 }
	}
	s.state.Store(&state{})
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// AskAlso sets the Authorizer for questions of callers about their own permissions, if not only the policy decides. Call it before any
// call.
func (s *Service) AskAlso(a access.Authorizer) { s.opts.Authorizer = a }

// Changed returns a channel that signals that permissions have changed.
func (s *Service) Changed() <-chan struct{} { return s.changed }

// Authorize implements access.Authorizer by the policy.
func (s *Service) Authorize(ctx context.Context, who *access.Identity, p access.Permission) (access.Grant, error) {
	return s.state.Load().policy.Authorize(ctx, who, p)
}

// load reads the whole store. It holds the lock meanwhile; because otherwise a change that is committed during the read and applied before
// its end would be lost when the state is replaced. Such a change waits, and is applied afterwards.
func (s *Service) load(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &state{keys: map[string]*record{}, deleted: maps.Clone(s.state.Load().deleted)}
	if shared, ok := s.opts.Store.(store.Shared); ok {
		var err error
		if next.floor, err = shared.Revision(); err != nil {
			return fmt.Errorf("reading keys and roles: %w", err)
		}
	}
	for e, err := range store.All(ctx, s.opts.Store, prefix, store.MaxRange) {
		if err != nil {
			return fmt.Errorf("reading keys and roles: %w", err)
		}
		if err := next.put(e); err != nil {
			return err
		}
	}
	s.set(next)
	return nil
}

// put adds an entry to a state that is being built.
func (n *state) put(e store.Entry) error {
	switch name, isKey := strings.CutPrefix(e.Key, keyPrefix); {
	case isKey:
		r := &record{}
		if err := json.Unmarshal(e.Value, r); err != nil {
			return fmt.Errorf("reading entry %s of the registry: %w", e.Key, err)
		}
		n.keys[name] = r.prepare(e.Revision)
	case e.Key == policyKey:
		policy := &sandboxv1.AccessPolicy{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(e.Value, policy); err != nil {
			return fmt.Errorf("reading entry %s of the registry: %w", e.Key, err)
		}
		n.stored, n.revision = policy, e.Revision
	}
	return nil
}

// set makes a state the current one. Called with the lock held.
func (s *Service) set(next *state) {
	next.byDigest = make(map[string]*record, len(next.keys))
	for _, r := range next.keys {
		next.byDigest[r.SHA256] = r
		if r.Old != nil {
			next.byDigest[r.Old.SHA256] = r
		}
	}
	maps.DeleteFunc(next.deleted, func(_ string, at uint64) bool { return at <= next.floor })
	next.policy = access.NewPolicy(next.stored)
	next.teams = map[string]*limits{}
	for _, l := range next.stored.GetLimits() {
		next.teams[l.GetTeam()] = limitsOf(l.GetLimits())
	}
	s.state.Store(next)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// heard applies the changes of one transaction from the watch. The watch passes changes in the order of their revisions, so the state then
// has every change up to these.
func (s *Service) heard(events []store.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.apply(events)
	for _, e := range events {
		next.floor = max(next.floor, e.Revision)
	}
	s.set(next)
}

// wrote applies a change of this replica. The watch may pass earlier changes afterwards. So the state keeps a deletion until the watch has
// passed it; because an earlier change would bring the entry back.
func (s *Service) wrote(e store.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.apply([]store.Event{e})
	if _, shared := s.opts.Store.(store.Shared); shared && e.Deleted {
		if next.deleted == nil {
			next.deleted = map[string]uint64{}
		}
		next.deleted[e.Key] = e.Revision
	}
	s.set(next)
}

// apply returns a state with the changes that are later than the current one. Called with the lock held.
func (s *Service) apply(events []store.Event) *state {
	before := s.state.Load()
	next := &state{
		keys: maps.Clone(before.keys), stored: before.stored, revision: before.revision, floor: before.floor,
		deleted: maps.Clone(before.deleted),
	}
	for _, e := range events {
		name, isKey := strings.CutPrefix(e.Key, keyPrefix)
		known := max(next.floor, next.deleted[e.Key])
		if !isKey {
			known = max(known, next.revision)
		} else if r := next.keys[name]; r != nil {
			known = max(known, r.revision)
		}
		switch {
		case e.Revision < known:
			continue
		case !e.Deleted:
			if err := next.put(e.Entry); err != nil {
				s.opts.Log.Error(err, "Could not read an entry of keys and roles; the previous one stays")
			}
		case isKey:
			delete(next.keys, name)
		case e.Key == policyKey:
			next.stored, next.revision = nil, 0
		}
	}
	return next
}

// Run follows the store, and writes last uses, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	if shared, ok := s.opts.Store.(store.Shared); ok {
		parts.Go(func() { s.follow(ctx, shared) })
	}
	ticker := s.opts.Clock.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			parts.Wait()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			s.flush(last)
			return nil
		case <-ticker.C():
			s.flush(ctx)
		}
	}
}

func (s *Service) follow(ctx context.Context, shared store.Shared) {
	store.KeepFollowing(ctx, shared, store.FollowOptions{
		Prefix: prefix, Load: s.load, Changed: s.heard, Clock: s.opts.Clock,
		Failed: func(err error) {
			s.opts.Log.Info("Could not follow keys and roles in the store; the last state is used", "error", err.Error())
		},
	})
}

// commit writes one entry, or deletes it if value is nil, provided that it still has a revision. Then it applies the write to the state.
func (s *Service) commit(ctx context.Context, key string, revision uint64, value []byte) error {
	txn := store.Txn{If: []store.Condition{{Key: key, Revision: revision}}}
	if value == nil {
		txn.Deletes = []string{key}
	} else {
		txn.Puts = []store.Put{{Key: key, Value: value}}
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	written, err := s.opts.Store.Commit(ctx, txn)
	if err != nil {
		if errors.Is(err, store.ErrConflict) {
			return err
		}
		return storeFailed(err)
	}
	s.wrote(store.Event{Entry: store.Entry{Key: key, Value: value, Revision: written}, Deleted: value == nil})
	return nil
}

// uses holds the last uses of keys that are not written yet.
type uses struct {
	mu    *sync.Mutex
	since map[string]time.Time
}

func newUses() uses { return uses{&sync.Mutex{}, map[string]time.Time{}} }

func (u uses) note(name string, at time.Time) {
	at = at.UTC().Truncate(time.Minute)
	u.mu.Lock()
	defer u.mu.Unlock()
	if at.After(u.since[name]) {
		u.since[name] = at
	}
}

func (u uses) take() map[string]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := maps.Clone(u.since)
	clear(u.since)
	return out
}

// flush writes the last uses of existing keys. A failed write is lost: a key that is in use is recorded again.
func (s *Service) flush(ctx context.Context) {
	known := s.state.Load().keys
	txn := store.Txn{Lazy: true}
	write := func() {
		if len(txn.Puts) == 0 {
			return
		}
		if _, err := s.opts.Store.Commit(ctx, txn); err != nil {
			s.opts.Log.Info("Last uses of keys were not written", "error", err.Error())
		}
		txn.Puts = nil
	}
	for name, at := range s.used.take() {
		if known[name] == nil {
			continue
		}
		txn.Puts = append(txn.Puts, store.Put{Key: usedPrefix + name, Value: []byte(at.Format(time.RFC3339))})
		if len(txn.Puts) == flushMost {
			write()
		}
	}
	write()
}
