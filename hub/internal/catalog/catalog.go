// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/wallclock"
)

// Fleet is the hub's view of its clusters.
type Fleet interface {
	ClusterIDs() []string
	Env(key segment.Key) *sandboxv1.Env
	// Serves reports whether a cluster's scope includes an Env.
	Serves(clusterID string, key segment.Key) bool
}

// Options configure a Service.
type Options struct {
	Store     store.Store
	Fleet     Fleet
	Calls     calls.Dispatcher            // to every cluster
	Connected func(clusterID string) bool // to this replica
	// Source is the hub's own cluster if manifests are written there; nil if the API writes them.
	Source Source
	// ClaimCounts count the claims of a rollout's stage; nil: no counts are known.
	ClaimCounts *ClaimCounts
	Clock       clock.WithTicker
	Log         logr.Logger
}

// Service keeps the catalogue.
type Service struct {
	opts  Options
	id    string
	state atomic.Pointer[state]

	mu      sync.Mutex // guards changes of state, floors and wakes
	floors  map[string]int32
	wakes   map[string]chan struct{} // by cluster, for the clusters to which this replica delivers
	changed chan struct{}
}

// state is this replica's copy of the store. It is immutable.
type state struct {
	records  map[string]*record  // by key
	statuses map[string]statuses // by cluster
}

// New returns a Service that has loaded the store.
func New(ctx context.Context, o Options) (*Service, error) {
	s := &Service{opts: o, floors: map[string]int32{}, wakes: map[string]chan struct{}{}, changed: make(chan struct{}, 1)}
	s.state.Store(&state{})
	if err := s.identify(ctx); err != nil {
		return nil, fmt.Errorf("reading the catalogue's id: %w", err)
	}
	return s, s.load(ctx)
}

func (s *Service) identify(ctx context.Context) error {
	for {
		e, ok, err := s.opts.Store.Get(ctx, idKey)
		if err != nil || ok {
			s.id = string(e.Value)
			return err
		}
		random := make([]byte, 8)
		if _, err := rand.Read(random); err != nil {
			return err
		}
		_, err = store.CompareAndSwap(ctx, s.opts.Store, idKey, 0, []byte(hex.EncodeToString(random)))
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// load reads the whole store. A record that was written during the read stays if the read did not see it; because it would be set back
// until its event arrives.
func (s *Service) load(ctx context.Context) error {
	next := &state{records: map[string]*record{}, statuses: map[string]statuses{}}
	var from uint64 // the read sees every change up to this revision
	if shared, ok := s.opts.Store.(store.Shared); ok {
		var err error
		if from, err = shared.Revision(); err != nil {
			return fmt.Errorf("reading the catalogue: %w", err)
		}
	}
	for _, part := range []string{objectPrefix, clusterPrefix} {
		for e, err := range store.All(ctx, s.opts.Store, part, 1000) {
			if err != nil {
				return fmt.Errorf("reading the catalogue: %w", err)
			}
			if err := next.put(e); err != nil {
				return err
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, r := range s.state.Load().records {
		if read := next.records[key]; r.stored > from && (read == nil || r.stored > read.stored) {
			next.records[key] = r
		}
	}
	s.state.Store(next)
	s.wakeDeliverers(func(string) bool { return true })
	return nil
}

func (n *state) put(e store.Entry) error {
	if name, ok := strings.CutPrefix(e.Key, objectPrefix); ok {
		r := &record{}
		err := json.Unmarshal(e.Value, r)
		if err == nil {
			err = r.prepare(e.Revision)
		}
		if err != nil {
			return fmt.Errorf("reading entry %s of the registry: %w", e.Key, err)
		}
		n.records[name] = r
	} else if id, ok := strings.CutPrefix(e.Key, clusterPrefix); ok {
		all := statuses{}
		if err := json.Unmarshal(e.Value, &all); err != nil {
			return fmt.Errorf("reading entry %s of the registry: %w", e.Key, err)
		}
		n.statuses[id] = all
	}
	return nil
}

// wakeDeliverers wakes the deliverers of the clusters that a change concerns; because a thousand deliverers that each examine a thousand
// records after each change would take all of the hub's processors. Called with the lock held.
func (s *Service) wakeDeliverers(concerns func(cluster string) bool) {
	for cluster, c := range s.wakes {
		if concerns(cluster) {
			wake(c)
		}
	}
	wake(s.changed)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lacks reports whether a change may be later than the state.
func (n *state) lacks(e store.Event) bool {
	name, isObject := strings.CutPrefix(e.Key, objectPrefix)
	known := n.records[name]
	return !isObject || known == nil || e.Revision > known.stored
}

// apply applies the changes that are later than the state.
func (s *Service) apply(events []store.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state.Load()
	if !slices.ContainsFunc(events, before.lacks) {
		return
	}
	next := &state{records: maps.Clone(before.records), statuses: maps.Clone(before.statuses)}
	var news []string      // keys of records
	var rewritten []string // clusters whose status another replica wrote; the event may be older than the state
	for _, e := range events {
		name, isObject := strings.CutPrefix(e.Key, objectPrefix)
		if !next.lacks(e) {
			continue
		}
		id, isCluster := strings.CutPrefix(e.Key, clusterPrefix)
		if isObject {
			news = append(news, name)
		} else if isCluster {
			rewritten = append(rewritten, id)
		}
		switch {
		case !e.Deleted:
			if err := next.put(e.Entry); err != nil {
				s.opts.Log.Error(err, "Could not read an entry of the catalogue; the previous one stays")
			}
		case isObject:
			delete(next.records, name)
		case isCluster:
			delete(next.statuses, id)
		}
	}
	s.state.Store(next)
	s.wakeDeliverers(func(cluster string) bool {
		return slices.Contains(rewritten, cluster) && !next.statuses[cluster].same(before.statuses[cluster]) ||
			slices.ContainsFunc(news, func(key string) bool {
				return before.records[key].concerns(cluster) || next.records[key].concerns(cluster)
			})
	})
}

// setStatuses sets the stored status of the catalogue in a cluster.
func (s *Service) setStatuses(cluster string, all statuses) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state.Load()
	next := &state{records: before.records, statuses: maps.Clone(before.statuses)}
	next.statuses[cluster] = all
	s.state.Store(next)
	wake(s.changed)
}

// Run follows the store, delivers clusters their parts, and advances rollouts, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	if shared, ok := s.opts.Store.(store.Shared); ok {
		parts.Go(func() { s.follow(ctx, shared) })
	}
	parts.Go(func() { s.roll(ctx) })
	s.deliver(ctx)
	parts.Wait()
	return nil
}

func (s *Service) follow(ctx context.Context, shared store.Shared) {
	store.KeepFollowing(ctx, shared, store.FollowOptions{
		Prefix: prefix, Load: s.load, Changed: s.apply, Clock: s.opts.Clock,
		Failed: func(err error) {
			s.opts.Log.Info("Could not follow the catalogue in the store; the last state is used", "error", err.Error())
		},
	})
}

func (s *Service) sleep(ctx context.Context, d time.Duration) bool {
	return wallclock.Sleep(ctx, s.opts.Clock, d) == nil
}

// changedError is the error of a write that another write of the record has preceded.
type changedError struct{ shown *problem.Error }

func (e changedError) Error() string { return e.shown.Error() }

func (e changedError) Unwrap() error { return e.shown }

// write stores a record and its history, provided that the stored record is still before. A nil before means that there is none. A nil
// history stays unchanged.
func (s *Service) write(ctx context.Context, r, before *record, history []revision) error {
	key := keyOf(r.Ref)
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", r.Ref, err)
	}
	var known uint64
	if before != nil {
		known = before.stored
	}
	txn := store.Txn{If: []store.Condition{{Key: objectPrefix + key, Revision: known}}, Puts: []store.Put{{Key: objectPrefix + key,
		Value: value}}}
	if history != nil {
		data, err := json.Marshal(history)
		if err != nil {
			return fmt.Errorf("encoding the revisions of %s: %w", r.Ref, err)
		}
		txn.Puts = append(txn.Puts, store.Put{Key: historyPrefix + key, Value: data})
	}
	written, err := s.opts.Store.Commit(ctx, txn)
	switch {
	case errors.Is(err, store.ErrConflict):
		return changedError{problem.InvalidField("revision", "",
			"the revision that is there: "+r.Ref.String()+" has just been changed; get it, and try again")}
	case err != nil:
		return storeFailed(err)
	}
	s.apply([]store.Event{{Entry: store.Entry{Key: objectPrefix + key, Value: value, Revision: written}}})
	return nil
}

// writeRevision writes a record, and adds it to its history.
func (s *Service) writeRevision(ctx context.Context, r, before *record) error {
	history, err := s.history(ctx, r.Ref)
	if err != nil {
		return err
	}
	history = slices.Insert(history, 0, revision{r.Revision, r.Changed, r.By, r.Manifest})
	return s.write(ctx, r, before, history[:min(len(history), maxRevisions)])
}

func (s *Service) history(ctx context.Context, r manifest.Ref) ([]revision, error) {
	e, ok, err := s.opts.Store.Get(ctx, historyPrefix+keyOf(r))
	if err != nil {
		return nil, storeFailed(err)
	}
	out := []revision{}
	if ok {
		if err := json.Unmarshal(e.Value, &out); err != nil {
			return nil, fmt.Errorf("reading entry %s of the registry: %w", e.Key, err)
		}
	}
	return out, nil
}

func storeFailed(err error) error {
	return problem.New(problem.Unavailable, "the hub's store failed: %w", err).WithRetryAfter(problem.RetrySoon)
}
