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
	next := &state{keys: map[string]*record{}}
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

// apply applies the changes that are later than the state.
func (s *Service) apply(events []store.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state.Load()
	next := &state{keys: maps.Clone(before.keys), stored: before.stored, revision: before.revision}
	for _, e := range events {
		name, isKey := strings.CutPrefix(e.Key, keyPrefix)
		known := next.revision
		if isKey {
			known = 0
			if r := next.keys[name]; r != nil {
				known = r.revision
			}
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
	s.set(next)
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
		Prefix: prefix, Load: s.load, Changed: s.apply, Clock: s.opts.Clock,
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
	written, err := s.opts.Store.Commit(ctx, txn)
	if err != nil {
		if errors.Is(err, store.ErrConflict) {
			return err
		}
		return storeFailed(err)
	}
	s.apply([]store.Event{{Entry: store.Entry{Key: key, Value: value, Revision: written}, Deleted: value == nil}})
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
