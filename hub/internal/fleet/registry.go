// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

// Record is what the hub must not forget of a cluster.
type Record struct {
	ClusterID       string        `json:"clusterID"`
	UID             string        `json:"uid"` // of its namespace kube-system
	Incarnation     uint64        `json:"incarnation"`
	Term            string        `json:"term"` // whose incarnation that is
	ResourceVersion uint64        `json:"resourceVersion"`
	RegisteredAt    time.Time     `json:"registeredAt"`
	Tombstones      []segment.Key `json:"tombstones,omitempty"` // removed Envs, oldest first
	Draining        bool          `json:"draining,omitempty"`
	// Forgotten are the clusters that had the name and were removed, oldest first. Without a UID the name is free.
	Forgotten []Forgotten `json:"forgotten,omitempty"`
}

// Forgotten is the tombstone of a cluster.
type Forgotten struct {
	UID         string    `json:"uid"`
	Incarnation uint64    `json:"incarnation"` // so that nothing older is believed should it come back
	Term        string    `json:"term"`
	At          time.Time `json:"at"`
	Lifted      bool      `json:"lifted,omitempty"` // it may register again
}

// Registry keeps the records durably.
type Registry interface {
	Load(ctx context.Context) ([]Record, error)
	// Save returns when the record is durable. Of one cluster it is never called concurrently.
	Save(ctx context.Context, r Record) error
}

const registryPrefix = "cluster/"

type storeRegistry struct{ store store.Store }

// NewRegistry keeps the records in a store, one entry a cluster. Give it a store of its own: the registry must outlive the
// loss of the claims.
func NewRegistry(s store.Store) Registry { return storeRegistry{s} }

func (r storeRegistry) Load(ctx context.Context) ([]Record, error) {
	var records []Record
	for after := ""; ; {
		entries, err := r.store.Range(ctx, registryPrefix, after, store.MaxRange)
		if err != nil {
			return nil, fmt.Errorf("reading the registry: %w", err)
		}
		for _, e := range entries {
			var record Record
			if err := json.Unmarshal(e.Value, &record); err != nil {
				return nil, fmt.Errorf("reading registry entry %s: %w", e.Key, err)
			}
			records = append(records, record)
			after = e.Key
		}
		if len(entries) < store.MaxRange {
			return records, nil
		}
	}
}

func (r storeRegistry) Save(ctx context.Context, record Record) error {
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encoding the record of cluster %s: %w", record.ClusterID, err)
	}
	put := store.Put{Key: registryPrefix + record.ClusterID, Value: value}
	if _, err := r.store.Commit(ctx, store.Txn{Puts: []store.Put{put}}); err != nil {
		return fmt.Errorf("recording cluster %s: %w", record.ClusterID, err)
	}
	return nil
}
