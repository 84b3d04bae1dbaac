// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"

	"navix.sh/atoll/pkg/store"
)

// moved reports whether an entry is part of the content, and not about the store that it is in.
func moved(key string) bool { return key != markKey }

// cursor iterates over selected entries of a store in key order.
type cursor struct {
	store store.Store
	of    func(key string) bool
	page  []store.Entry
	after string
	ended bool
}

const cursorPage = 1000

// next returns the next entry, or false at the end.
func (c *cursor) next(ctx context.Context) (e store.Entry, ok bool, err error) {
	for {
		if len(c.page) == 0 && !c.ended {
			if c.page, err = c.store.Range(ctx, "", c.after, cursorPage); err != nil {
				return e, false, err
			}
			c.ended = len(c.page) < cursorPage
		}
		if len(c.page) == 0 {
			return e, false, nil
		}
		e, c.page = c.page[0], c.page[1:]
		if c.after = e.Key; c.of(e.Key) {
			return e, true, nil
		}
	}
}

// pair calls see for each selected key that either store has. The entry of a store that lacks the key is nil.
func pair(ctx context.Context, from, to store.Store, of func(key string) bool, see func(a, b *store.Entry) error) error {
	left, right := &cursor{store: from, of: of}, &cursor{store: to, of: of}
	a, inA, err := left.next(ctx)
	if err != nil {
		return err
	}
	b, inB, err := right.next(ctx)
	for err == nil && (inA || inB) {
		switch {
		case !inB || inA && a.Key < b.Key:
			if err = see(&a, nil); err == nil {
				a, inA, err = left.next(ctx)
			}
		case !inA || b.Key < a.Key:
			if err = see(nil, &b); err == nil {
				b, inB, err = right.next(ctx)
			}
		default:
			if err = see(&a, &b); err == nil {
				a, inA, err = left.next(ctx)
			}
			if err == nil {
				b, inB, err = right.next(ctx)
			}
		}
	}
	return err
}

const (
	mirrorOps   = 100     // less than etcd's limit for a transaction
	mirrorBytes = 1 << 20 // less than etcd's limit for a request
)

// mirror makes the selected entries of one store equal to those of another, and returns how many it changed.
func mirror(ctx context.Context, from, to store.Store, of func(key string) bool) (changed int, err error) {
	var txn store.Txn
	size := 0
	flush := func() error {
		if len(txn.Puts)+len(txn.Deletes) == 0 {
			return nil
		}
		_, err := to.Commit(ctx, txn)
		txn, size = store.Txn{}, 0
		return err
	}
	err = pair(ctx, from, to, of, func(a, b *store.Entry) error {
		var grows int
		switch {
		case a == nil:
			grows = len(b.Key)
		case b == nil || string(a.Value) != string(b.Value):
			grows = len(a.Key) + len(a.Value)
		default:
			return nil
		}
		if size+grows > mirrorBytes || len(txn.Puts)+len(txn.Deletes) == mirrorOps {
			if err := flush(); err != nil {
				return err
			}
		}
		changed++
		if size += grows; a == nil {
			txn.Deletes = append(txn.Deletes, b.Key)
		} else {
			txn.Puts = append(txn.Puts, store.Put{Key: a.Key, Value: a.Value})
		}
		return nil
	})
	return changed, errors.Join(err, flush())
}

// compare returns the number of entries and a checksum over them. It fails with the first difference.
func compare(ctx context.Context, from, to store.Store) (n int, sum string, err error) {
	digest := sha256.New()
	err = pair(ctx, from, to, moved, func(a, b *store.Entry) error {
		switch {
		case a == nil:
			return fmt.Errorf("entry %q is at the target only", b.Key)
		case b == nil:
			return fmt.Errorf("entry %q is at the source only", a.Key)
		case string(a.Value) != string(b.Value):
			return fmt.Errorf("entry %q differs", a.Key)
		}
		n++
		add(digest, a.Key)
		add(digest, string(a.Value))
		return nil
	})
	return n, hex.EncodeToString(digest.Sum(nil)), err
}

func add(digest hash.Hash, text string) { _, _ = fmt.Fprintf(digest, "%d:%s", len(text), text) }
