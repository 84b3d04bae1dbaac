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

	"go.etcd.io/bbolt"

	"navix.sh/atoll/pkg/durable"
)

// Migration converts the content of a file from one schema to the next. All necessary migrations run in one transaction, so a file is never
// between two schemas.
type Migration func(m *Migrating) error

// Migrating gives a Migration access to the content of a file.
type Migrating struct {
	data     *bbolt.Bucket
	revision uint64
	seal     sealing
}

// Each calls f for every entry with the prefix, in key order. f must not change the file.
func (m *Migrating) Each(prefix string, f func(key string, value []byte) error) error {
	c := m.data.Cursor()
	for k, v := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
		value, err := m.seal.open(context.Background(), string(k), v[revisionLen:])
		if err != nil {
			return err
		}
		if err := f(string(k), value); err != nil {
			return err
		}
	}
	return nil
}

// Put writes an entry.
func (m *Migrating) Put(key string, value []byte) error {
	value, err := m.seal.close(context.Background(), key, value)
	if err != nil {
		return err
	}
	return m.data.Put([]byte(key), append(binary.BigEndian.AppendUint64(nil, m.revision), value...))
}

// Delete removes an entry.
func (m *Migrating) Delete(key string) error { return m.data.Delete([]byte(key)) }

// layout is the expected content of a file.
type layout struct {
	kind       string
	migrations []Migration
	seal       sealing
}

// errPlain means that a file is intact but not encrypted, although it should be.
var errPlain = errors.New("the file is not encrypted")

func (l layout) schema() uint64 { return uint64(len(l.migrations)) + 1 }

// open opens the file at path, or creates it. A new file appears at path only when it is complete, so open reports an empty file as
// damaged.
func (l layout) open(path string) (*bbolt.DB, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		if err := l.create(path); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case info.Size() == 0:
		return nil, fmt.Errorf("%w: it is empty", ErrDamaged)
	}
	db, err := openFile(path)
	if err != nil {
		return nil, err
	}
	if err = dropDraft(path); err == nil {
		err = prepare(db, path, l)
	}
	if errors.Is(err, errPlain) {
		plain := layout{l.kind, l.migrations, sealing{nil, l.kind}}
		if err = errors.Join(plain.replace(db, path, l.seal), db.Close()); err != nil {
			return nil, err
		}
		return l.open(path)
	}
	if err == nil {
		// Sync the directory also for an existing file: the process that created the file may have crashed before its name was durable.
		err = durable.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// create creates the file under another name first. If two processes do this at the same time, the second one finds the file of the first.
func (l layout) create(path string) error {
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	draft := draftOf(path)
	db, err := openDraft(draft)
	if errors.Is(err, ErrDamaged) {
		// A process died while it created this file, which never had content.
		if err = os.Remove(draft); err == nil {
			db, err = openDraft(draft)
		}
	}
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error { return l.apply(tx, 0) })
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := publish(draft, path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func draftOf(path string) string { return path + ".new" }

// publish renames a draft to path, unless a file exists there: another process may have created that file and may use it. It returns
// os.ErrNotExist if the other process has removed the draft.
func publish(draft, path string) error {
	err := os.Link(draft, path)
	if err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
		if _, missing := os.Lstat(path); errors.Is(missing, os.ErrNotExist) {
			return os.Rename(draft, path) // the file system has no links
		}
		err = os.ErrExist
	}
	switch {
	case errors.Is(err, os.ErrExist):
		if there, failed := os.Stat(path); failed != nil || !there.Mode().IsRegular() {
			return err
		}
	case err != nil:
		return err
	}
	return os.Remove(draft)
}

// dropDraft removes a draft that is a hard link to the file, left by a process that died before it removed the link. If the file were moved
// away later, the draft would be taken for a new file.
func dropDraft(path string) error {
	draft, err := os.Lstat(draftOf(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if err != nil || !os.SameFile(draft, there) {
		return err
	}
	if err := os.Remove(draftOf(path)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// openDraft opens a new file, or an unfinished one.
func openDraft(path string) (*bbolt.DB, error) {
	db, err := openFile(path)
	if err != nil {
		return nil, err
	}
	err = db.View(func(tx *bbolt.Tx) error { return checkTree(tx, path, int64(db.Info().PageSize)) })
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// InUse reports whether a process has the file at path open as a store.
func InUse(path string) bool {
	db, err := openFile(path)
	if err != nil {
		return errors.Is(err, ErrLocked)
	}
	_ = db.Close()
	return false
}

// prepare checks a file from end to end and migrates it, so that damage is found at the start and not under load.
func prepare(db *bbolt.DB, path string, l layout) (err error) {
	defer guard(&err)()
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	var schema uint64
	err = db.View(func(tx *bbolt.Tx) (err error) {
		if tx.Size() > info.Size() {
			return fmt.Errorf("%w: it should have %d bytes and has %d", ErrDamaged, tx.Size(), info.Size())
		}
		if err := checkTree(tx, path, int64(db.Info().PageSize)); err != nil {
			return err
		}
		var sealed bool
		if schema, sealed, err = l.check(tx.Bucket(metaBucket)); err != nil {
			return err
		}
		plain := l.seal.sealer != nil && !sealed
		if err := l.checkData(tx.Bucket(dataBucket), sealed); err != nil {
			return err
		}
		if err := checkPages(tx); err != nil || !plain {
			return err
		}
		return errPlain
	})
	if err != nil || schema == l.schema() {
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error { return l.apply(tx, schema) })
}

// check returns the file's schema, and whether its values are encrypted.
func (l layout) check(meta *bbolt.Bucket) (schema uint64, sealed bool, err error) {
	if meta == nil {
		return 0, false, fmt.Errorf("%w: it has no layout", ErrDamaged)
	}
	version := meta.Get(schemaKey)
	if len(version) != 8 {
		return 0, false, fmt.Errorf("%w: no schema version", ErrDamaged)
	}
	schema = binary.BigEndian.Uint64(version)
	if schema > l.schema() {
		return 0, false, fmt.Errorf("the file has schema %d and this build knows up to %d: %w", schema, l.schema(), ErrNewer)
	}
	if schema == 0 {
		return 0, false, fmt.Errorf("%w: schema 0 was never written", ErrDamaged)
	}
	switch got := string(meta.Get(kindKey)); {
	case got == l.kind:
		return schema, false, nil
	case got != sealedKind(l.kind):
		return 0, false, fmt.Errorf("the file holds %q, not %q", got, l.kind)
	case l.seal.sealer == nil:
		return 0, false, ErrEncrypted
	}
	return schema, true, nil
}

// apply initialises a new file, or runs the missing migrations of an older one.
func (l layout) apply(tx *bbolt.Tx, schema uint64) error {
	meta, err := tx.CreateBucketIfNotExists(metaBucket)
	if err != nil {
		return err
	}
	data, err := tx.CreateBucketIfNotExists(dataBucket)
	if err != nil {
		return err
	}
	if schema > 0 {
		for i, migrate := range l.migrations[schema-1:] {
			revision, err := data.NextSequence()
			if err != nil {
				return err
			}
			if err := migrate(&Migrating{data, revision, l.seal}); err != nil {
				return fmt.Errorf("migrating from schema %d: %w", schema+uint64(i), err)
			}
		}
	}
	if err := meta.Put(schemaKey, binary.BigEndian.AppendUint64(nil, l.schema())); err != nil {
		return err
	}
	kind := l.kind
	if l.seal.sealer != nil {
		kind = sealedKind(kind)
	}
	return meta.Put(kindKey, []byte(kind))
}

// checkData reads every entry, and decrypts the values of an encrypted file.
func (l layout) checkData(data *bbolt.Bucket, sealed bool) error {
	if data == nil {
		return fmt.Errorf("%w: it holds no data", ErrDamaged)
	}
	last := data.Sequence()
	return data.ForEach(func(k, v []byte) error {
		if len(v) < revisionLen || binary.BigEndian.Uint64(v) > last {
			return fmt.Errorf("%w: entry %q has no valid revision", ErrDamaged, k)
		}
		if !sealed {
			return nil
		}
		_, err := l.seal.open(context.Background(), string(k), v[revisionLen:])
		return err
	})
}

// checkPages makes bbolt compare its pages with its free list, because a page in both would eventually be overwritten. It must run after
// checkTree, which finds pages that would cause a fault: bbolt checks in another goroutine, where guard has no effect.
func checkPages(tx *bbolt.Tx) error {
	var first error
	for err := range tx.Check() {
		if first == nil {
			first = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return first
}
