// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/envelope"
)

// sealedKind returns the kind that an encrypted file has in its layout. It differs, so that a build that does not know encryption rejects
// it.
func sealedKind(kind string) string { return kind + ", encrypted" }

// sealing encrypts the values of a file. Without a sealer values are plain. Empty values stay empty.
type sealing struct {
	sealer *envelope.Sealer
	kind   string
}

func (s sealing) place(key string) string { return s.kind + "\x00" + key }

func (s sealing) close(ctx context.Context, key string, value []byte) ([]byte, error) {
	if s.sealer == nil || len(value) == 0 {
		return value, nil
	}
	sealed, err := s.sealer.Seal(ctx, s.place(key), value)
	if err != nil {
		return nil, fmt.Errorf("encrypting entry %q: %w", key, err)
	}
	return sealed, nil
}

func (s sealing) open(ctx context.Context, key string, value []byte) ([]byte, error) {
	if s.sealer == nil || len(value) == 0 {
		return value, nil
	}
	plain, err := s.sealer.Open(ctx, s.place(key), value)
	if errors.Is(err, envelope.ErrDamaged) {
		return nil, fmt.Errorf("%w: entry %q: %w", ErrDamaged, key, err)
	} else if err != nil {
		return nil, fmt.Errorf("decrypting entry %q: %w", key, err)
	}
	return plain, nil
}

// txn returns the transaction with its values encrypted.
func (s sealing) txn(ctx context.Context, txn Txn) (Txn, error) {
	if s.sealer == nil {
		return txn, nil
	}
	puts := make([]Put, len(txn.Puts))
	for i, p := range txn.Puts {
		value, err := s.close(ctx, p.Key, p.Value)
		if err != nil {
			return Txn{}, err
		}
		puts[i] = Put{Key: p.Key, Value: value}
	}
	txn.Puts = puts
	return txn, nil
}

// stale reports whether a value is encrypted with a key other than the current one. An empty value has no key.
func (s sealing) stale(value []byte) bool {
	if s.sealer == nil {
		return false
	}
	name, ok := envelope.KeyOf(value)
	return ok && name != s.sealer.Current()
}

const (
	// resealBatch is how many entries one commit checks and encrypts if necessary. Claims wait for at most one such commit.
	resealBatch = 256
	// replaceBatch is how many entries one transaction writes to a new file, for which no caller waits.
	replaceBatch = 4096
)

// CountSealed returns the number of encrypted entries, and how many of them are encrypted with a key other than the current one.
func (b *Bolt) CountSealed(ctx context.Context) (sealed, stale int, err error) {
	for after := ""; ; {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		var seen int
		err := b.view(func(tx *bbolt.Tx) error {
			after, seen = page(tx.Bucket(dataBucket), after, replaceBatch, func(_, v []byte) {
				if len(v) > revisionLen && b.seal.sealer != nil {
					sealed++
				}
				if b.seal.stale(v[revisionLen:]) {
					stale++
				}
			})
			return nil
		})
		if err != nil || seen < replaceBatch {
			return sealed, stale, wrap(err)
		}
	}
}

// Reseal encrypts entries that have another key with the current one. It checks a bounded number of entries, in key order from the one
// after `after`. It returns the last key it checked, or "" at the end, and how many entries it changed. Entries keep their revisions,
// because their values do not change.
func (b *Bolt) Reseal(ctx context.Context, after string) (last string, changed int, err error) {
	if b.seal.sealer == nil {
		return "", 0, nil
	}
	// The committer may still run the change after Reseal has returned, so the change writes no result of Reseal.
	var (
		checked   string
		encrypted int
		failed    error
	)
	_, err = b.committer.commit(ctx, &request{change: func(data *bbolt.Bucket) error {
		stale := map[string][]byte{}
		var seen int
		checked, seen = page(data, after, resealBatch, func(k, v []byte) {
			if b.seal.stale(v[revisionLen:]) {
				stale[string(k)] = bytes.Clone(v)
			}
		})
		if seen < resealBatch {
			checked = ""
		}
		for key, v := range stale {
			next, err := b.reseal(ctx, key, v)
			if err != nil {
				failed = err // fails this entry, not the group
				return nil
			}
			if err := data.Put([]byte(key), next); err != nil {
				return err
			}
			encrypted++
		}
		return nil
	}})
	if err == nil { // otherwise the change may still run
		err = failed
	}
	if err != nil {
		return "", 0, fmt.Errorf("encrypting with key %q: %w", b.seal.sealer.Current(), wrap(err))
	}
	return checked, encrypted, nil
}

func (b *Bolt) reseal(ctx context.Context, key string, v []byte) ([]byte, error) {
	value, err := b.seal.open(ctx, key, v[revisionLen:])
	if err != nil {
		return nil, b.spoilt(err)
	}
	sealed, err := b.seal.close(ctx, key, value)
	return append(v[:revisionLen:revisionLen], sealed...), err
}

// page calls see for up to most entries after the given key. It returns the last key and the number of entries.
func page(data *bbolt.Bucket, after string, most int, see func(k, v []byte)) (last string, seen int) {
	c := data.Cursor()
	k, v := c.Seek([]byte(after))
	if after != "" && string(k) == after {
		k, v = c.Next()
	}
	for ; k != nil && seen < most; k, v = c.Next() {
		see(k, v)
		last = string(k)
		seen++
	}
	return last, seen
}

// Rewrite replaces a file that no process has open with a copy without free space, encrypted with the current key of to, or plain if to is
// nil. from has the keys of the file; nil means that it is plain. Afterwards, an encrypted file contains nothing that is plain or encrypted
// with another key. A crash leaves either the old file or the complete copy.
func Rewrite(path, kind string, from, to *envelope.Sealer, migrations ...Migration) error {
	l := layout{kind, migrations, sealing{from, kind}}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("store file %s: %w", path, err)
	}
	db, err := l.open(path)
	if err == nil {
		err = errors.Join(l.replace(db, path, sealing{to, kind}), db.Close())
	}
	if err != nil {
		return fmt.Errorf("store file %s: %w", path, err)
	}
	return nil
}

// replace writes the entries to a new file, encrypted as to specifies, and renames it over the open file, whose lock keeps other processes
// away.
func (l layout) replace(db *bbolt.DB, path string, to sealing) (err error) {
	draft := path + ".rewrite"
	if err := os.Remove(draft); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	defer guard(&err)()
	out, err := openFile(draft)
	if err != nil {
		return err
	}
	out.NoSync = true // the file counts only once it is complete
	err = l.copyTo(out, db, to)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(draft))
	}
	return durable.Rename(draft, path)
}

// copyTo copies the entries. It writes the layout last, so that an unfinished file has none.
func (l layout) copyTo(out, db *bbolt.DB, to sealing) error {
	ctx := context.Background()
	return db.View(func(tx *bbolt.Tx) error {
		data, meta := tx.Bucket(dataBucket), tx.Bucket(metaBucket)
		for after, more := "", true; more; {
			err := out.Update(func(tx *bbolt.Tx) error {
				next, err := tx.CreateBucketIfNotExists(dataBucket)
				if err != nil {
					return err
				}
				next.FillPercent = 0.9 // keys are in order
				var failed error
				last, seen := page(data, after, replaceBatch, func(k, v []byte) {
					if failed == nil {
						failed = copyEntry(ctx, next, l.seal, to, k, v)
					}
				})
				after, more = last, seen == replaceBatch
				return failed
			})
			if err != nil {
				return err
			}
		}
		return out.Update(func(tx *bbolt.Tx) error {
			kind := l.kind
			if to.sealer != nil {
				kind = sealedKind(kind)
			}
			next, err := tx.CreateBucketIfNotExists(metaBucket)
			if err == nil {
				err = tx.Bucket(dataBucket).SetSequence(data.Sequence())
			}
			if err == nil {
				err = next.Put(schemaKey, meta.Get(schemaKey))
			}
			if err == nil {
				err = next.Put(kindKey, []byte(kind))
			}
			return err
		})
	})
}

func copyEntry(ctx context.Context, into *bbolt.Bucket, from, to sealing, k, v []byte) error {
	value, err := from.open(ctx, string(k), v[revisionLen:])
	if err != nil {
		return err
	}
	if value, err = to.close(ctx, string(k), value); err != nil {
		return err
	}
	return into.Put(bytes.Clone(k), append(binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(v)), value...))
}
