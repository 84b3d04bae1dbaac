// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

// MaxForgotten bounds the tombstones of one name; the oldest are dropped first.
const MaxForgotten = 32

const recordPrefix = "cluster/"

// Record is the hub's durable state of a cluster: an entry of the registry file.
type Record struct {
	ClusterID       string        `json:"clusterID"`
	UID             string        `json:"uid"` // of its namespace kube-system
	Incarnation     uint64        `json:"incarnation"`
	Term            string        `json:"term"` // whose incarnation that is
	ResourceVersion uint64        `json:"resourceVersion"`
	RegisteredAt    time.Time     `json:"registeredAt"`
	Tombstones      []segment.Key `json:"tombstones,omitempty"` // removed Envs, oldest first
	Draining        bool          `json:"draining,omitempty"`
	Keys            []string      `json:"keys,omitempty"` // of its certificates (link.PeerKey), latest last
	// Forgotten are the clusters that had the name and were removed, oldest first. Without a UID no cluster has the name.
	Forgotten []Forgotten `json:"forgotten,omitempty"`
}

// Forgotten is the tombstone of a cluster.
type Forgotten struct {
	UID         string    `json:"uid"`
	Incarnation uint64    `json:"incarnation"` // so that no older one is accepted if it returns
	Term        string    `json:"term"`
	At          time.Time `json:"at"`
	Keys        []string  `json:"keys,omitempty"`     // of its certificates: refused under every name
	Lifted      bool      `json:"lifted,omitempty"`   // it may register again
	Released    bool      `json:"released,omitempty"` // another cluster may register under the name
}

// MaxKeys bounds the certificate keys of a cluster; the oldest are dropped first.
const MaxKeys = 8

// AddKey notes a certificate's key, and reports whether it is new.
func (r *Record) AddKey(key string) bool {
	if key == "" || slices.Contains(r.Keys, key) {
		return false
	}
	keys := append(slices.Clone(r.Keys), key)
	r.Keys = keys[max(0, len(keys)-MaxKeys):]
	return true
}

// Revoked reports whether the name itself is refused: its cluster was removed, and that was not reverted.
func (r *Record) Revoked() bool {
	last := len(r.Forgotten) - 1
	return r.UID == "" && last >= 0 && !r.Forgotten[last].Lifted && !r.Forgotten[last].Released
}

// RevokedKeys are the certificate keys of the clusters that were removed from the name.
func (r *Record) RevokedKeys() (keys []string) {
	for _, f := range r.Forgotten {
		if !f.Lifted {
			keys = append(keys, f.Keys...)
		}
	}
	return keys
}

// Forgot reports whether a cluster was permanently removed from the name.
func (r *Record) Forgot(uid string) bool {
	return slices.ContainsFunc(r.Forgotten, func(f Forgotten) bool { return f.UID == uid && !f.Lifted })
}

// LoadRecords reads all records of a registry.
func LoadRecords(ctx context.Context, registry store.Store) ([]Record, error) {
	var records []Record
	for after := ""; ; {
		entries, err := registry.Range(ctx, recordPrefix, after, store.MaxRange)
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

// SaveRecord writes a record.
func SaveRecord(ctx context.Context, registry store.Store, record Record) error {
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encoding the record of cluster %s: %w", record.ClusterID, err)
	}
	put := store.Put{Key: recordPrefix + record.ClusterID, Value: value}
	if _, err := registry.Commit(ctx, store.Txn{Puts: []store.Put{put}}); err != nil {
		return fmt.Errorf("recording cluster %s: %w", record.ClusterID, err)
	}
	return nil
}
