// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// schema is the version of the file's layout. A file with a higher one was written by a newer build.
const schema = 1

const (
	maxKey      = 1024
	lockTimeout = 2 * time.Second
	revisionLen = 8
)

var (
	metaBucket = []byte("meta")
	dataBucket = []byte("data")
	schemaKey  = []byte("schema")
	kindKey    = []byte("kind")
)

// ErrLocked is a file that another process has open.
var ErrLocked = errors.New("another process holds its lock")

// Bolt is a Store in one bbolt file. Values are stored behind their revision, which is the data bucket's sequence.
type Bolt struct {
	db        *bbolt.DB
	committer *committer
}

var _ Store = (*Bolt)(nil)

// OpenBolt opens the file at path, or creates it together with its directory. kind tells files of different content
// apart: a file of another kind is refused. Every error names the path.
func OpenBolt(path, kind string) (*Bolt, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("store file %s: %w", path, err)
	}
	db, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("store file %s: %w", path, explainOpen(err))
	}
	if err := prepare(db, path, kind); err != nil {
		return nil, errors.Join(fmt.Errorf("store file %s: %w", path, err), db.Close())
	}
	return &Bolt{db: db, committer: startCommitter(db)}, nil
}

// openFile guards bbolt's Open, which panics or faults on a damaged or truncated file instead of returning an error.
func openFile(path string) (db *bbolt.DB, err error) {
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockTimeout,
		// The default freelist is linear in the free pages, which churn of claims makes many.
		FreelistType: bbolt.FreelistMapType,
	})
}

func recoverDamage(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the file is damaged: %v", r)
	}
}

func explainOpen(err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w: %w", ErrLocked, err)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return fmt.Errorf("the file is damaged or no store file: %w", err)
	default:
		return err
	}
}

// prepare checks an existing file from end to end, so that damage is met at the start and not under load, and lays out a
// new one.
func prepare(db *bbolt.DB, path, kind string) (err error) {
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("the file is damaged: it should have %d bytes and has %d", tx.Size(), info.Size())
		}
		if err := checkMeta(tx.Bucket(metaBucket), kind); err != nil {
			return err
		}
		return checkData(tx.Bucket(dataBucket))
	})
	if err != nil {
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists(metaBucket)
		if err != nil {
			return err
		}
		if _, err := tx.CreateBucketIfNotExists(dataBucket); err != nil {
			return err
		}
		if err := meta.Put(schemaKey, binary.BigEndian.AppendUint64(nil, schema)); err != nil {
			return err
		}
		return meta.Put(kindKey, []byte(kind))
	})
}

func checkMeta(meta *bbolt.Bucket, kind string) error {
	if meta == nil {
		return nil // a new file
	}
	version := meta.Get(schemaKey)
	if len(version) != 8 {
		return errors.New("the file is damaged: no schema version")
	}
	if v := binary.BigEndian.Uint64(version); v > schema {
		return fmt.Errorf("the file has schema %d and this build knows up to %d: it was written by a newer build", v, schema)
	}
	if got := string(meta.Get(kindKey)); got != kind {
		return fmt.Errorf("the file holds %q, not %q", got, kind)
	}
	return nil
}

func checkData(data *bbolt.Bucket) error {
	if data == nil {
		return nil
	}
	last := data.Sequence()
	return data.ForEach(func(k, v []byte) error {
		if len(v) < revisionLen || binary.BigEndian.Uint64(v) > last {
			return fmt.Errorf("the file is damaged: entry %q has no valid revision", k)
		}
		return nil
	})
}

// Get implements Store.
func (b *Bolt) Get(ctx context.Context, key string) (Entry, bool, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, false, err
	}
	var entry Entry
	var found bool
	err := b.db.View(func(tx *bbolt.Tx) error {
		if v := tx.Bucket(dataBucket).Get([]byte(key)); v != nil {
			entry, found = toEntry([]byte(key), v), true
		}
		return nil
	})
	return entry, found, wrap(err)
}

// Range implements Store.
func (b *Bolt) Range(ctx context.Context, prefix, after string, limit int) ([]Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if limit < 1 || limit > MaxRange {
		limit = MaxRange
	}
	var entries []Entry
	err := b.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(dataBucket).Cursor()
		k, v := c.Seek([]byte(max(prefix, after)))
		if after != "" && string(k) == after {
			k, v = c.Next()
		}
		for ; k != nil && bytes.HasPrefix(k, []byte(prefix)) && len(entries) < limit; k, v = c.Next() {
			entries = append(entries, toEntry(k, v))
		}
		return nil
	})
	return entries, wrap(err)
}

// Commit implements Store.
func (b *Bolt) Commit(ctx context.Context, txn Txn) (uint64, error) {
	for _, p := range txn.Puts {
		if len(p.Key) == 0 || len(p.Key) > maxKey {
			return 0, ErrKey
		}
	}
	return b.committer.commit(ctx, txn)
}

// Close implements Store.
func (b *Bolt) Close() error {
	b.committer.stop()
	return b.db.Close()
}

// toEntry copies: bbolt's memory is valid only inside the transaction.
func toEntry(k, v []byte) Entry {
	return Entry{Key: string(k), Value: bytes.Clone(v[revisionLen:]), Revision: binary.BigEndian.Uint64(v)}
}

func wrap(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}
