// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func withPrefixOne() []clientv3.OpOption {
	return []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()}
}

// Register adds the store's metrics, labelled with its kind.
func (e *Etcd) Register(registry prometheus.Registerer) error {
	return errors.Join(e.metrics.register(registry, e.Failure), registry.Register(e.counts.gauge(e.options.Kind)))
}

// CopyTo writes a copy of the store, of one revision, to a new bbolt file at path. Values stay encrypted.
func (e *Etcd) CopyTo(path string) (err error) {
	ctx := context.Background()
	l := layout{e.options.Kind, make([]Migration, e.options.Schema-1), e.seal}
	db, err := openFile(path)
	if err != nil {
		return fmt.Errorf("copying %s to %s: %w", e, path, err)
	}
	defer guard(&err)()
	db.NoSync = true // it counts once it is complete
	err = e.fill(ctx, db)
	if err == nil {
		err = db.Update(func(tx *bbolt.Tx) error { return l.apply(tx, 0) }) // the layout last: an unfinished file has none
	}
	if err == nil {
		err = db.Sync()
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("copying %s to %s: %w", e, path, err)
	}
	return nil
}

// fill writes the entries, with their revisions, into a file. A page is a transaction.
func (e *Etcd) fill(ctx context.Context, db *bbolt.DB) error {
	at := int64(0)
	for after, more := "", true; more; {
		var page []*mvccpb.KeyValue
		revision, err := e.pages(ctx, "", after, replaceBatch, at, func(kv *mvccpb.KeyValue) error {
			page = append(page, kv)
			return nil
		})
		if err != nil {
			return err
		}
		at, more = revision, len(page) == replaceBatch
		err = db.Update(func(tx *bbolt.Tx) error {
			data, err := tx.CreateBucketIfNotExists(dataBucket)
			if err == nil {
				err = data.SetSequence(uint64(at))
			}
			for _, kv := range page {
				after = string(kv.Key[len(e.base):])
				value := append(binary.BigEndian.AppendUint64(nil, uint64(kv.ModRevision)), kv.Value...)
				err = errors.Join(err, data.Put([]byte(after), value))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CountSealed counts the encrypted entries, and those of them that have another key than the current one.
func (e *Etcd) CountSealed(ctx context.Context) (sealed, stale int, err error) {
	if e.seal.sealer == nil {
		return 0, 0, nil
	}
	_, err = e.pages(ctx, "", "", math.MaxInt, 0, func(kv *mvccpb.KeyValue) error {
		if len(kv.Value) > 0 {
			sealed++
		}
		if e.seal.stale(kv.Value) {
			stale++
		}
		return nil
	})
	return sealed, stale, err
}

// Reseal encrypts entries with the current key that are encrypted with another one, in the order of their keys after a given
// one. It looks at a bounded number of them, and returns how many it changed and the last key that it saw; "" at the end. An
// entry that another write changes meanwhile has the current key by that.
func (e *Etcd) Reseal(ctx context.Context, after string) (last string, changed int, err error) {
	var seen int
	var stale []*mvccpb.KeyValue
	_, err = e.pages(ctx, "", after, resealBatch, 0, func(kv *mvccpb.KeyValue) error {
		last = string(kv.Key[len(e.base):])
		seen++
		if e.seal.stale(kv.Value) {
			stale = append(stale, kv)
		}
		return nil
	})
	for _, kv := range stale {
		entry, failed := e.entry(ctx, kv)
		if failed == nil {
			_, failed = CompareAndSwap(ctx, e, entry.Key, entry.Revision, entry.Value)
		}
		if failed != nil && !errors.Is(failed, ErrConflict) {
			err = errors.Join(err, failed)
			break
		}
		changed++
	}
	if err != nil {
		return "", changed, fmt.Errorf("encrypting with key %q: %w", e.seal.sealer.Current(), err)
	}
	if seen < resealBatch {
		last = ""
	}
	return last, changed, nil
}
