// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"navix.sh/atoll/pkg/envelope"
)

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

// Reasons for which a file is rejected. The remedy depends on the content of the file, so the caller reports it.
var (
	// ErrLocked: another process has the file open.
	ErrLocked = errors.New("another process holds its lock")
	// ErrDamaged: the content of the file is not what was written. An open store that finds damage accepts no more writes.
	ErrDamaged = errors.New("the file is damaged")
	// ErrNewer: a newer build wrote the file.
	ErrNewer = errors.New("it was written by a newer build")
	// ErrEncrypted: the file is encrypted, and no key was given.
	ErrEncrypted = errors.New("it is encrypted")
)

// Bolt is a Store in one bbolt file. Values are stored after their revision, which is the data bucket's sequence.
type Bolt struct {
	db        *bbolt.DB
	kind      string
	schema    uint64
	seal      sealing
	counts    sealCounts
	committer *committer
}

var _ Store = (*Bolt)(nil)

// OpenBolt opens the file at path, or creates it together with its directory. kind tells files with different content apart: OpenBolt
// rejects a file of another kind. A file has schema 1 without migrations, and one more for each migration. An older file is migrated before
// anything can read it; a newer one is rejected. Every error names the path.
func OpenBolt(path, kind string, migrations ...Migration) (*Bolt, error) {
	return OpenSealed(path, kind, nil, migrations...)
}

// OpenSealed is OpenBolt for a file with encrypted values. It encrypts a file that is not encrypted. It rejects an encrypted file if there
// is no sealer (ErrEncrypted), or if the sealer does not have its keys (envelope.ErrNoKey, envelope.ErrWrongKey), and then changes nothing.
func OpenSealed(path, kind string, sealer *envelope.Sealer, migrations ...Migration) (*Bolt, error) {
	l := layout{kind, migrations, sealing{sealer, kind}}
	db, err := l.open(path)
	if err != nil {
		return nil, fmt.Errorf("store file %s: %w", path, err)
	}
	return &Bolt{db: db, kind: kind, schema: l.schema(), seal: l.seal, committer: startCommitter(db, newMetrics(kind))}, nil
}

// Schema returns the version of the file's layout.
func (b *Bolt) Schema() uint64 { return b.schema }

// Failure returns the error of the last write, or nil if it succeeded.
func (b *Bolt) Failure() error {
	if err := b.committer.failure.Load(); err != nil {
		return fmt.Errorf("store file %s: %w", b.db.Path(), *err)
	}
	return nil
}

// Revision returns the revision of the last transaction. It never decreases, unless an older copy replaces the file.
func (b *Bolt) Revision() (revision uint64, err error) {
	err = b.view(func(tx *bbolt.Tx) error {
		revision = tx.Bucket(dataBucket).Sequence()
		return nil
	})
	return revision, wrap(err)
}

// openFile opens a file without checking its content.
func openFile(path string) (db *bbolt.DB, err error) {
	var file *os.File
	defer func() {
		if db == nil && file != nil {
			letGo(file)
		}
	}()
	defer guard(&err)()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockTimeout,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			var err error
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
		// The default freelist is linear in the free pages, and churn of claims creates many.
		FreelistType: bbolt.FreelistMapType,
	})
	if err != nil {
		return nil, explainOpen(path, err)
	}
	if err := stillAt(path, file); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// stillAt returns an error if the file was replaced while this process waited for its lock. Otherwise two processes could each lock another
// file of the same name.
func stillAt(path string, file *os.File) error {
	mine, err := file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(mine, there) {
		return fmt.Errorf("%w: another file took its place meanwhile", ErrLocked)
	}
	return nil
}

// guard converts panics of bbolt into errors. bbolt panics on a damaged or truncated file, or reads unmapped memory.
func guard(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if r := recover(); r != nil {
			*err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}
}

func explainOpen(path string, err error) error {
	info, statErr := os.Stat(path)
	var call *fs.PathError
	switch {
	case statErr == nil && info.Size() < int64(2*os.Getpagesize()) && !errors.Is(err, berrors.ErrTimeout) && !errors.As(err, &call):
		return fmt.Errorf("%w: it has %d bytes: %w", ErrDamaged, info.Size(), err) // bbolt has no error for that
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w: %w", ErrLocked, err)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return fmt.Errorf("%w, or no store file: %w", ErrDamaged, err)
	default:
		return err
	}
}

// Get implements Store.
func (b *Bolt) Get(ctx context.Context, key string) (entry Entry, found bool, err error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, false, err
	}
	err = b.view(func(tx *bbolt.Tx) error {
		if v := tx.Bucket(dataBucket).Get([]byte(key)); v != nil {
			entry, found = toEntry([]byte(key), v), true
		}
		return nil
	})
	if err == nil && found {
		entry.Value, err = b.seal.open(ctx, key, entry.Value)
	}
	return entry, found, b.spoilt(wrap(err))
}

// Range implements Store.
func (b *Bolt) Range(ctx context.Context, prefix, after string, limit int) (entries []Entry, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	limit = entriesOf(limit)
	err = b.view(func(tx *bbolt.Tx) error {
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
	for i := range entries {
		if e := &entries[i]; err == nil {
			e.Value, err = b.seal.open(ctx, e.Key, e.Value)
		}
	}
	if err != nil {
		return nil, b.spoilt(wrap(err))
	}
	return entries, nil
}

// spoilt stops the store if the error is ErrDamaged.
func (b *Bolt) spoilt(err error) error {
	if errors.Is(err, ErrDamaged) {
		b.committer.broken.Store(true)
	}
	return err
}

// Commit implements Store.
func (b *Bolt) Commit(ctx context.Context, txn Txn) (uint64, error) {
	for _, p := range txn.Puts {
		if len(p.Key) == 0 || len(p.Key) > maxKey {
			return 0, ErrKey
		}
	}
	txn, err := b.seal.txn(ctx, txn)
	if err != nil {
		return 0, err
	}
	return b.committer.commit(ctx, &request{txn: txn})
}

// CopyTo writes a consistent copy of the store to a new file at path. Writes that grow the file wait for the copy, so path should be on a
// local disk, not on a network.
func (b *Bolt) CopyTo(path string) error {
	err := b.view(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) })
	if err != nil {
		return fmt.Errorf("copying the store to %s: %w", path, wrap(err))
	}
	return nil
}

// view runs a read transaction. It fails after damage, because bbolt may have hit the damage while it held a lock.
func (b *Bolt) view(read func(tx *bbolt.Tx) error) (err error) {
	if b.committer.broken.Load() {
		return ErrDamaged
	}
	defer func() {
		if errors.Is(err, ErrDamaged) {
			b.committer.broken.Store(true)
		}
	}()
	defer guard(&err)()
	return b.db.View(read)
}

// Close implements Store.
func (b *Bolt) Close() error {
	b.committer.stop()
	if b.committer.broken.Load() {
		return fmt.Errorf("closing the store: %w", ErrDamaged) // bbolt may hold its lock forever, so do not wait for it
	}
	return b.db.Close()
}

// toEntry copies the value, because bbolt's memory is valid only inside the transaction.
func toEntry(k, v []byte) Entry {
	return Entry{Key: string(k), Value: bytes.Clone(v[revisionLen:]), Revision: binary.BigEndian.Uint64(v)}
}

func wrap(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}
