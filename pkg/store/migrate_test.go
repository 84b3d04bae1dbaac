// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/store"
)

// prefix renames every entry, and counts them in one that it adds.
func prefix(with string) store.Migration {
	return func(m *store.Migrating) error {
		moved := map[string]string{}
		err := m.Each("", func(key string, value []byte) error { moved[key] = string(value); return nil })
		for key, value := range moved {
			err = errors.Join(err, m.Delete(key), m.Put(with+key, []byte(value+with)))
		}
		return errors.Join(err, m.Put("count", fmt.Append(nil, len(moved))))
	}
}

func TestAnOlderFileIsMigratedStepByStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	rev, err := store.CompareAndSwap(t.Context(), s, "k", 0, []byte("v"))
	must.Succeed(t, errors.Join(err, s.Close()))
	s, err = store.OpenBolt(path, "test", prefix("a/"), prefix("b/"))
	must.Succeed(t, err)
	got, _, err := s.Get(t.Context(), "b/a/k")
	if err != nil || string(got.Value) != "va/b/" || got.Revision <= rev {
		t.Errorf("after two migrations: %+v %v", got, err)
	}
	if got, _, _ := s.Get(t.Context(), "count"); string(got.Value) != "2" || s.Schema() != 3 {
		t.Errorf("counted %q, schema %d", got.Value, s.Schema())
	}
	must.Succeed(t, s.Close())
	if _, err := store.OpenBolt(path, "test", prefix("a/")); !errors.Is(err, store.ErrNewer) || !strings.Contains(err.Error(), path) {
		t.Errorf("an older build: %v", err)
	}
	s, err = store.OpenBolt(path, "test", prefix("a/"), prefix("b/"))
	must.Succeed(t, err)
	defer func() { _ = s.Close() }()
	if _, ok, _ := s.Get(t.Context(), "b/a/k"); !ok {
		t.Error("migrated once more than due")
	}
}

// TestAMigrationThatFailsLeavesTheFile: the build before it can still open it.
func TestAMigrationThatFailsLeavesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	fill(t, path)
	fails := errors.New("cannot")
	_, err := store.OpenBolt(path, "test", prefix("a/"), func(*store.Migrating) error { return fails })
	if !errors.Is(err, fails) || !strings.Contains(err.Error(), "schema 2") {
		t.Fatalf("error %v", err)
	}
	s := open(t, path)
	if _, ok, err := s.Get(t.Context(), "k000"); !ok || err != nil {
		t.Errorf("the entry is gone: %v", err)
	}
}

// TestAFileAppearsWhole: an empty file was truncated, and a dying process's leftover beside it does not count.
func TestAFileAppearsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	must.Succeed(t, os.WriteFile(path, nil, 0o600))
	if _, err := store.OpenBolt(path, "test"); !errors.Is(err, store.ErrDamaged) {
		t.Fatalf("an empty file: %v", err)
	}
	must.Succeed(t, errors.Join(os.Remove(path), os.WriteFile(path+".new", []byte(strings.Repeat("x", 9000)), 0o600)))
	open(t, path)
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the draft is still there: %v", err)
	}
}

// TestAPageThatIsFreeAndInUse is damage that no reader detects: the next writes would overwrite existing data.
func TestAPageThatIsFreeAndInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	fill(t, path)
	db, err := bbolt.Open(path, 0o600, nil)
	must.Succeed(t, err)
	page := db.Info().PageSize
	var list int64
	if err := errors.Join(db.View(func(tx *bbolt.Tx) error {
		for id := int64(2); id*int64(page) < tx.Size(); id++ {
			if p, err := tx.Page(int(id)); err == nil && p != nil && p.Type == "freelist" {
				list = id
			}
		}
		return nil
	}), db.Close()); err != nil || list == 0 {
		t.Fatalf("free list at page %d: %v", list, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must.Succeed(t, err)
	// The first entry of the list, behind the page's header of 16 bytes: page 3, or what is next to it, is the data's.
	_, err = f.WriteAt([]byte{byte(list + 1), 0, 0, 0, 0, 0, 0, 0}, list*int64(page)+16)
	must.Succeed(t, errors.Join(err, f.Close()))
	if _, err := store.OpenBolt(path, "test"); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
}

// TestAFileThatIsCutOffUnderAnOpenStore: reads and writes return damage, and the process survives.
func TestAFileThatIsCutOffUnderAnOpenStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	fill(t, path)
	s := open(t, path)
	truncate(4096)(t, path)
	if _, err := s.Range(t.Context(), "", "", 0); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("reading: %v", err)
	}
	for range 2 {
		if _, err := store.CompareAndSwap(t.Context(), s, "new", 0, nil); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("writing: %v", err)
		}
	}
	if err := s.Close(); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("closing: %v", err)
	}
}

func TestACopyIsTheStoreOfOneMoment(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "s.db"))
	_, err := store.CompareAndSwap(t.Context(), s, "before", 0, nil)
	must.Succeed(t, err)
	must.Succeed(t, s.CopyTo(filepath.Join(dir, "copy.db")))
	_, err = store.CompareAndSwap(t.Context(), s, "after", 0, nil)
	must.Succeed(t, err)
	entries, err := open(t, filepath.Join(dir, "copy.db")).Range(t.Context(), "", "", 0)
	if err != nil || len(entries) != 1 || entries[0].Key != "before" {
		t.Errorf("the copy holds %v: %v", entries, err)
	}
}

// TestADamagedFileIsLetGoOf: it is refused as damaged again, and not as open.
func TestADamagedFileIsLetGoOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	fill(t, path)
	info, err := os.Stat(path)
	must.Succeed(t, err)
	for size := info.Size() / 2; size > 0; size /= 2 {
		truncate(size)(t, path)
		for range 2 {
			if _, err := store.OpenBolt(path, "test"); err == nil || errors.Is(err, store.ErrLocked) {
				t.Errorf("cut to %d bytes: %v", size, err)
			}
		}
	}
}
