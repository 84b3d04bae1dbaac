// SPDX-License-Identifier: Apache-2.0

package allotment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"navix.sh/atoll/pkg/allotpolicy"
	"navix.sh/atoll/pkg/store"
)

const (
	prefix        = "allotments/"
	epochKey      = prefix + "epoch"
	recordPrefix  = prefix + "g/"
	addressPrefix = prefix + "c/"
	reclaimPrefix = prefix + "r/"

	// maxPuts bounds one transaction; because etcd has such a limit.
	maxPuts = 100
)

type epoch struct {
	Epoch uint64 `json:"epoch"`
}

type address struct {
	Incarnation uint64 `json:"incarnation"`
}

func keyOf(k allotpolicy.Key) string { return recordPrefix + k.Namespace + "/" + k.Env + "/" + k.Group }

func parseKey(key string) (allotpolicy.Key, bool) {
	parts := strings.Split(strings.TrimPrefix(key, recordPrefix), "/")
	if len(parts) != 3 || !strings.HasPrefix(key, recordPrefix) {
		return allotpolicy.Key{}, false
	}
	return allotpolicy.Key{Namespace: parts[0], Env: parts[1], Group: parts[2]}, true
}

func parseRecord(e store.Entry) (r allotpolicy.Record, err error) {
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return r, fmt.Errorf("reading entry %s of the registry: %w", e.Key, err)
	}
	return r, nil
}

func loadRecords(ctx context.Context, s store.Store) (map[allotpolicy.Key]allotpolicy.Record, error) {
	out := map[allotpolicy.Key]allotpolicy.Record{}
	for e, err := range store.All(ctx, s, recordPrefix, 1000) {
		if err != nil {
			return nil, fmt.Errorf("reading allotments: %w", err)
		}
		if k, ok := parseKey(e.Key); ok {
			if out[k], err = parseRecord(e); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func loadAddressed(ctx context.Context, s store.Store) (map[string]uint64, error) {
	out := map[string]uint64{}
	for e, err := range store.All(ctx, s, addressPrefix, 1000) {
		if err != nil {
			return nil, fmt.Errorf("reading allotments: %w", err)
		}
		var a address
		if err := json.Unmarshal(e.Value, &a); err != nil {
			return nil, fmt.Errorf("reading entry %s of the registry: %w", e.Key, err)
		}
		out[strings.TrimPrefix(e.Key, addressPrefix)] = a.Incarnation
	}
	return out, nil
}

// term is the right of one leader to write.
type term struct {
	store store.Store
	epoch epoch
	held  store.Condition
}

// begin ends the terms of all earlier leaders.
func begin(ctx context.Context, s store.Store) (*term, error) {
	e, has, err := s.Get(ctx, epochKey)
	t := &term{store: s}
	if err == nil && has {
		err = json.Unmarshal(e.Value, &t.epoch)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the epoch of allotments: %w", err)
	}
	t.epoch.Epoch++
	value, err := json.Marshal(t.epoch)
	if err != nil {
		return nil, err
	}
	revision, err := store.CompareAndSwap(ctx, s, epochKey, e.Revision, value)
	if err != nil {
		return nil, fmt.Errorf("beginning an epoch of allotments: %w", err)
	}
	t.held = store.Condition{Key: epochKey, Revision: revision}
	return t, nil
}

// errEnded means that another leader has begun.
var errEnded = errors.New("another replica divides now")

// write stores changes in several transactions, each consistent by itself. applied is called after each one.
func (t *term) write(ctx context.Context, c allotpolicy.Change, applied func(allotpolicy.Change)) error {
	for !c.None() {
		part := allotpolicy.Change{Records: map[allotpolicy.Key]allotpolicy.Record{}, Addressed: c.Addressed}
		txn := store.Txn{If: []store.Condition{t.held}}
		for id, incarnation := range c.Addressed {
			value, err := json.Marshal(address{incarnation})
			if err != nil {
				return err
			}
			txn.Puts = append(txn.Puts, store.Put{Key: addressPrefix + id, Value: value})
		}
		for k, r := range c.Records {
			if len(txn.Puts)+len(txn.Deletes) >= maxPuts {
				break
			}
			part.Records[k] = r
			if r.Empty() {
				txn.Deletes = append(txn.Deletes, keyOf(k))
				continue
			}
			value, err := json.Marshal(r)
			if err != nil {
				return err
			}
			txn.Puts = append(txn.Puts, store.Put{Key: keyOf(k), Value: value})
		}
		if err := t.commit(ctx, txn); err != nil {
			return err
		}
		applied(part)
		for k := range part.Records {
			delete(c.Records, k)
		}
		c.Addressed = nil
	}
	return nil
}

func (t *term) commit(ctx context.Context, txn store.Txn) error {
	_, err := t.store.Commit(ctx, txn)
	if errors.Is(err, store.ErrConflict) {
		return errEnded
	}
	if err != nil {
		return fmt.Errorf("storing allotments: %w", err)
	}
	return nil
}
