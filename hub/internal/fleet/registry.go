// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// Record is what the hub must not forget of a cluster.
type Record = hubstate.Record

// Forgotten is the tombstone of a cluster.
type Forgotten = hubstate.Forgotten

// Registry keeps the records durably.
type Registry interface {
	Load(ctx context.Context) ([]Record, error)
	// Save returns when the record is durable. Of one cluster it is never called concurrently.
	Save(ctx context.Context, r Record) error
}

type storeRegistry struct{ store store.Store }

// NewRegistry keeps the records in a store, one entry a cluster. Give it a store of its own: the registry must outlive the
// loss of the claims.
func NewRegistry(s store.Store) Registry { return storeRegistry{s} }

func (r storeRegistry) Load(ctx context.Context) ([]Record, error) {
	return hubstate.LoadRecords(ctx, r.store)
}

func (r storeRegistry) Save(ctx context.Context, record Record) error {
	return hubstate.SaveRecord(ctx, r.store, record)
}
