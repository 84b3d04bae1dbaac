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

const (
	// RecordPrefix is the prefix of the keys of records.
	RecordPrefix = "cluster/"
	// CatalogueKey is the key of the catalogue's id, which the first hub on a registry creates: package catalog of the hub.
	CatalogueKey = "catalog/id"
)

// Record is the hub's durable state of a cluster: an entry of the registry file.
type Record struct {
	ClusterID       string        `json:"clusterID"`
	UID             string        `json:"uid"` // uid of its namespace kube-system
	Incarnation     uint64        `json:"incarnation"`
	Term            string        `json:"term"` // term of that incarnation
	ResourceVersion uint64        `json:"resourceVersion"`
	RegisteredAt    time.Time     `json:"registeredAt"`
	Tombstones      []segment.Key `json:"tombstones,omitempty"` // removed Envs, oldest first
	Draining        bool          `json:"draining,omitempty"`
	Keys            []string      `json:"keys,omitempty"` // keys of its certificates (link.PeerKey), latest last
	// Forgotten are the clusters that had this name and were removed, oldest first. If UID is empty, no cluster has the name now.
	Forgotten []Forgotten `json:"forgotten,omitempty"`
	// RefusedKeys are certificate keys that are rejected under every name although their cluster is registered, oldest first.
	RefusedKeys []string `json:"revoked,omitempty"`
	// RevokedAt is when the cluster's certificates were last revoked. Certificates that were issued before that are rejected, unless Keys
	// contains their key. Zero: never, or by a build that did not record it.
	RevokedAt time.Time `json:"revokedAt,omitzero"`
	// Trust is the hash of the CAs that the cluster trusts, according to its last acknowledgment. Empty: its certificate comes from files.
	Trust string `json:"trust,omitempty"`
	// Issuer is the hash of the CA that signed the certificate of its last stream.
	Issuer string `json:"issuer,omitempty"`
	// Scope is what the cluster may serve; nil: everything.
	Scope *Scope `json:"scope,omitempty"`
	// Revision is the revision of the entry if several replicas share the registry. 0: there is no entry, or only one replica.
	Revision uint64 `json:"-"`
}

// Forgotten is the tombstone of a cluster.
type Forgotten struct {
	UID         string    `json:"uid"`
	Incarnation uint64    `json:"incarnation"` // so that an older one is not accepted if the cluster returns
	Term        string    `json:"term"`
	At          time.Time `json:"at"`
	Keys        []string  `json:"keys,omitempty"`     // keys of its certificates, which are rejected under every name
	Lifted      bool      `json:"lifted,omitempty"`   // the cluster may register again
	Released    bool      `json:"released,omitempty"` // another cluster may register under the name
}

// MaxKeys bounds the certificate keys of a cluster, and MaxRevoked its revoked keys; the oldest are dropped first. After a few at once,
// each hub process issues at most one certificate per tenth of a certificate's lifetime to a cluster. So a certificate whose key was
// dropped has expired, or is old enough for RevokedAt.
const (
	MaxKeys    = 32
	MaxRevoked = 256
)

// Revoke rejects certificates with these keys from now on.
func (r *Record) Revoke(keys []string) {
	revoked := slices.Clone(r.RefusedKeys)
	for _, key := range keys {
		if !slices.Contains(revoked, key) {
			revoked = append(revoked, key)
		}
	}
	r.RefusedKeys = revoked[max(0, len(revoked)-MaxRevoked):]
}

// RevokeBefore rejects certificates that were issued before the given time. An existing later time stays, because the clock may have been
// set back since.
func (r *Record) RevokeBefore(at time.Time) {
	if at = at.UTC().Truncate(time.Second); at.After(r.RevokedAt) { // certificates have whole seconds
		r.RevokedAt = at
	}
}

// Invite allows the cluster with the uid to register under the name, or to keep it, even if it was removed before. The certificate keys
// from before stay rejected.
func (r *Record) Invite(uid string) {
	for i, f := range r.Forgotten {
		if f.UID == uid && !f.Lifted {
			r.Revoke(f.Keys)
			r.RevokeBefore(f.At)
			r.Forgotten[i].Lifted = true
		}
	}
	if last := len(r.Forgotten) - 1; r.UID == "" && last >= 0 && !r.Forgotten[last].Lifted {
		r.Forgotten[last].Released = true
	}
}

// AddKey records a certificate's key, and reports whether it is new.
func (r *Record) AddKey(key string) bool {
	if key == "" || slices.Contains(r.Keys, key) {
		return false
	}
	keys := append(slices.Clone(r.Keys), key)
	r.Keys = keys[max(0, len(keys)-MaxKeys):]
	return true
}

// Revoked reports whether the name itself is rejected, because its cluster was removed and the removal was not reverted.
func (r *Record) Revoked() bool {
	last := len(r.Forgotten) - 1
	return r.UID == "" && last >= 0 && !r.Forgotten[last].Lifted && !r.Forgotten[last].Released
}

// RevokedKeys returns the certificate keys of the clusters that were removed from the name, and RefusedKeys.
func (r *Record) RevokedKeys() (keys []string) {
	for _, f := range r.Forgotten {
		if !f.Lifted {
			keys = append(keys, f.Keys...)
		}
	}
	return append(keys, r.RefusedKeys...)
}

// Forgot reports whether a cluster was permanently removed from the name.
func (r *Record) Forgot(uid string) bool {
	return slices.ContainsFunc(r.Forgotten, func(f Forgotten) bool { return f.UID == uid && !f.Lifted })
}

// LoadRecords reads all records of a registry.
func LoadRecords(ctx context.Context, registry store.Store) ([]Record, error) {
	var records []Record
	for e, err := range store.All(ctx, registry, RecordPrefix, store.MaxRange) {
		if err != nil {
			return nil, fmt.Errorf("reading the registry: %w", err)
		}
		record, err := ParseRecord(e)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// ParseRecord parses the record in an entry.
func ParseRecord(e store.Entry) (record Record, err error) {
	if err := json.Unmarshal(e.Value, &record); err != nil {
		return record, fmt.Errorf("reading registry entry %s: %w", e.Key, err)
	}
	record.Revision = e.Revision
	return record, nil
}

// LoadRecord returns the record of a cluster, or false if there is none.
func LoadRecord(ctx context.Context, registry store.Store, clusterID string) (record Record, found bool, err error) {
	e, found, err := registry.Get(ctx, RecordPrefix+clusterID)
	if err != nil {
		return record, false, fmt.Errorf("reading the registry: %w", err)
	}
	if found {
		record, err = ParseRecord(e)
	}
	return record, found, err
}

// SwapRecord writes a record if its entry still has the record's revision, and returns the new revision. Otherwise it returns
// store.ErrConflict.
func SwapRecord(ctx context.Context, registry store.Store, record Record) (revision uint64, err error) {
	value, err := json.Marshal(record)
	if err != nil {
		return 0, fmt.Errorf("encoding the record of cluster %s: %w", record.ClusterID, err)
	}
	revision, err = store.CompareAndSwap(ctx, registry, RecordPrefix+record.ClusterID, record.Revision, value)
	if err != nil {
		return 0, fmt.Errorf("recording cluster %s: %w", record.ClusterID, err)
	}
	return revision, nil
}

// SaveRecord writes a record.
func SaveRecord(ctx context.Context, registry store.Store, record Record) error {
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encoding the record of cluster %s: %w", record.ClusterID, err)
	}
	put := store.Put{Key: RecordPrefix + record.ClusterID, Value: value}
	if _, err := registry.Commit(ctx, store.Txn{Puts: []store.Put{put}}); err != nil {
		return fmt.Errorf("recording cluster %s: %w", record.ClusterID, err)
	}
	return nil
}
