// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// Record is the hub's durable state of a cluster.
type Record = hubstate.Record

// Forgotten is the tombstone of a cluster.
type Forgotten = hubstate.Forgotten

// Registry stores the records durably.
type Registry interface {
	Load(ctx context.Context) ([]Record, error)
	// Save returns when the record is durable. It is never called concurrently for one cluster.
	Save(ctx context.Context, r Record) error
}

type storeRegistry struct{ store store.Store }

// NewRegistry returns a Registry that stores one entry for each cluster. It needs a store of its own: the registry must outlive the loss of
// the claims.
func NewRegistry(s store.Store) Registry {
	if shared, ok := s.(store.Shared); ok {
		return sharedRegistry{storeRegistry{s}, shared}
	}
	return storeRegistry{s}
}

func (r storeRegistry) Load(ctx context.Context) ([]Record, error) {
	return hubstate.LoadRecords(ctx, r.store)
}

func (r storeRegistry) Save(ctx context.Context, record Record) error {
	return hubstate.SaveRecord(ctx, r.store, record)
}

// sharedRegistry is a Registry that other replicas write as well. Its records have revisions.
type sharedRegistry struct {
	storeRegistry
	shared store.Shared
}

// follow calls take with every record, and with each record that is written later, until ctx ends.
func (r sharedRegistry) follow(ctx context.Context, c clock.Clock, take func(Record), failed func(error)) {
	load := func(ctx context.Context) error {
		records, err := r.Load(ctx)
		for _, record := range records {
			take(record)
		}
		return err
	}
	changed := func(events []store.Event) {
		for _, e := range events {
			if record, err := hubstate.ParseRecord(e.Entry); err == nil && !e.Deleted {
				take(record)
			}
		}
	}
	store.KeepFollowing(ctx, r.shared, store.FollowOptions{
		Prefix: hubstate.RecordPrefix, Load: load, Changed: changed, Failed: failed, Clock: c,
	})
}
