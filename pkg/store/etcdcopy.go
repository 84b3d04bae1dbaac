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

// Register registers the store's metrics, labelled with its kind.
func (e *Etcd) Register(registry prometheus.Registerer) error {
	return errors.Join(e.metrics.register(registry, e.Failure), registry.Register(e.counts.gauge(e.options.Kind)))
}

// CopyTo writes a copy of the store at one revision to a new bbolt file at path. Values stay encrypted.
func (e *Etcd) CopyTo(path string) (err error) {
	ctx := context.Background()
	l := layout{e.options.Kind, make([]Migration, e.options.Schema-1), e.seal}
	db, err := openFile(path)
	if err != nil {
		return fmt.Errorf("copying %s to %s: %w", e, path, err)
	}
	defer guard(&err)()
	db.NoSync = true // the file counts only once it is complete
	err = e.fill(ctx, db)
	if err == nil {
		err = db.Update(func(tx *bbolt.Tx) error { return l.apply(tx, 0) }) // write the layout last, so that an unfinished file has none
	}
	if err == nil {
		err = db.Sync()
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("copying %s to %s: %w", e, path, err)
	}
	return nil
}

// fill writes the entries and their revisions to a file, one transaction per page.
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

// CountSealed returns the number of encrypted entries, and how many of them are encrypted with a key other than the current one.
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

// Reseal encrypts entries that have another key with the current one. It checks a bounded number of entries, in key order from the one
// after `after`. It returns the last key it checked, or "" at the end, and how many entries were stale. After an error it returns neither,
// although it may have encrypted some entries. An entry that another write changes at the same time is encrypted with the current key by
// that write.
func (e *Etcd) Reseal(ctx context.Context, after string) (last string, changed int, err error) {
	if e.seal.sealer == nil {
		return "", 0, nil
	}
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
	if err != nil {
		return "", 0, err
	}
	for _, kv := range stale {
		var entry Entry
		if entry, err = e.entry(ctx, kv); err == nil {
			_, err = CompareAndSwap(ctx, e, entry.Key, entry.Revision, entry.Value)
		}
		if err != nil && !errors.Is(err, ErrConflict) {
			return "", 0, fmt.Errorf("encrypting with key %q: %w", e.seal.sealer.Current(), err)
		}
	}
	if seen < resealBatch {
		last = ""
	}
	return last, len(stale), nil
}
