// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/store/storetest"
)

const canary = "canary-7f3a"

// Two keys of 32 bytes.
const (
	keyA = "- {name: a, secret: YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=}\n"
	keyB = "- {name: b, secret: YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=}\n"
	// wrongA has the name of keyA.
	wrongA = "- {name: a, secret: Y2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2M=}\n"
)

func writeKeys(t testing.TB, path, entries string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte("keys:\n"+entries), 0o600))
}

// changeKeys writes a file of keys, and has the process read it.
func changeKeys(t testing.TB, keys *envelope.KeyFile, path, entries string) {
	t.Helper()
	writeKeys(t, path, entries)
	_, err := keys.Reread()
	must.Succeed(t, err)
}

// keyFileOf writes a file of keys and opens it.
func keyFileOf(t testing.TB, path, entries string) *envelope.KeyFile {
	t.Helper()
	writeKeys(t, path, entries)
	keys, err := envelope.OpenKeyFile(path)
	must.Succeed(t, err)
	return keys
}

func sealerOf(t testing.TB, entries string) *envelope.Sealer {
	t.Helper()
	return envelope.New(keyFileOf(t, filepath.Join(t.TempDir(), "keys.yaml"), entries))
}

func openSealed(t *testing.T, path string, sealer *envelope.Sealer) *store.Bolt {
	t.Helper()
	s, err := store.OpenSealed(path, "test", sealer)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// plant writes entries that hold the canary, and returns their revisions.
func plant(t *testing.T, s *store.Bolt, n int) (revisions []uint64) {
	t.Helper()
	for i := range n {
		key := fmt.Sprintf("k%05d", i)
		rev, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: key, Value: []byte(key + canary)}, {Key: "empty/" + key}}})
		must.Succeed(t, err)
		revisions = append(revisions, rev)
	}
	return revisions
}

func planted(t *testing.T, s *store.Bolt, revisions []uint64) {
	t.Helper()
	entries, err := s.Range(t.Context(), "k", "", 0)
	if err != nil || len(entries) != len(revisions) {
		t.Fatalf("%d entries of %d, %v", len(entries), len(revisions), err)
	}
	for i, e := range entries {
		one, ok, err := s.Get(t.Context(), e.Key)
		if string(e.Value) != e.Key+canary || e.Revision != revisions[i] || err != nil || !ok || string(one.Value) != string(e.Value) {
			t.Fatalf("entry %s is %q at revision %d, want revision %d; alone %q, %v", e.Key, e.Value, e.Revision, revisions[i], one.Value, err)
		}
	}
	if e, ok, err := s.Get(t.Context(), "empty/k00000"); err != nil || !ok || len(e.Value) > 0 {
		t.Errorf("an empty entry is %q, %t, %v", e.Value, ok, err)
	}
}

func tells(t *testing.T, path, what string) bool {
	t.Helper()
	data, err := os.ReadFile(path)
	must.Succeed(t, err)
	return bytes.Contains(data, []byte(what))
}

func TestConformanceEncrypted(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		return openSealed(t, filepath.Join(t.TempDir(), "s.db"), sealerOf(t, keyA))
	})
}

// The raw file tells nothing of a value, and without a key it does: the check can fail.
func TestAnEncryptedFileTellsNothing(t *testing.T) {
	dir := t.TempDir()
	for name, sealer := range map[string]*envelope.Sealer{"plain.db": nil, "sealed.db": sealerOf(t, keyA)} {
		path := filepath.Join(dir, name)
		s := openSealed(t, path, sealer)
		revisions := plant(t, s, 50)
		planted(t, s, revisions)
		must.Succeed(t, s.CopyTo(path+".copy"))
		must.Succeed(t, s.Close())
		for _, file := range []string{path, path + ".copy"} {
			if got := tells(t, file, canary); got != (sealer == nil) {
				t.Errorf("%s tells what is in it: %t", file, got)
			}
		}
		if !tells(t, path, "k00001") {
			t.Error("keys are not where the documentation says")
		}
		planted(t, openSealed(t, path+".copy", sealer), revisions)
	}
}

// A file from before is encrypted as a whole when a key is given: not even its free pages tell what was in it.
func TestAPlainFileIsEncrypted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openSealed(t, path, nil)
	_, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: "gone", Value: bytes.Repeat([]byte(canary), 1000)}}})
	must.Succeed(t, err)
	_, err = s.Commit(t.Context(), store.Txn{Deletes: []string{"gone"}})
	must.Succeed(t, err)
	revisions := plant(t, s, 100)
	before, err := s.Revision()
	must.Succeed(t, err)
	must.Succeed(t, s.Close())
	sealer := sealerOf(t, keyA)
	s = openSealed(t, path, sealer)
	planted(t, s, revisions)
	if after, err := s.Revision(); err != nil || after != before {
		t.Errorf("revision %d, %v; want %d", after, err, before)
	}
	if rev, err := store.CompareAndSwap(t.Context(), s, "k00000", revisions[0], []byte("k00000"+canary)); err != nil || rev <= before {
		t.Errorf("a write at the revision from before: %d, %v", rev, err)
	}
	must.Succeed(t, s.Close())
	if tells(t, path, canary) {
		t.Error("the file still tells what is in it")
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside the file: %v, %v", left, err)
	}

	// And back, for a hub without a key.
	must.Succeed(t, os.WriteFile(path+".rewrite", []byte("half"), 0o600)) // of a process that died
	must.Succeed(t, store.Rewrite(path, "test", sealer, nil))
	s = openSealed(t, path, nil)
	if e, ok, err := s.Get(t.Context(), "k00001"); err != nil || !ok || string(e.Value) != "k00001"+canary || e.Revision != revisions[1] {
		t.Errorf("decrypted: %+v, %v", e, err)
	}
	must.Succeed(t, s.Close())
}

// What a key is missing for is refused, and stays as it is.
func TestAnEncryptedFileNeedsItsKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := openSealed(t, path, sealerOf(t, keyA))
	revisions := plant(t, s, 10)
	must.Succeed(t, s.Close())
	before, err := os.ReadFile(path)
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		sealer *envelope.Sealer
		kind   string
		want   error
		tells  string
	}{
		"no key":                  {nil, "test", store.ErrEncrypted, "it is encrypted"},
		"another key":             {sealerOf(t, keyB), "test", envelope.ErrNoKey, `"a"`},
		"another key of the name": {sealerOf(t, wrongA), "test", envelope.ErrWrongKey, `"a"`},
		"another kind":            {sealerOf(t, keyA), "claims", nil, `the file holds "test, encrypted", not "claims"`}, // so says an older build
	} {
		for what, do := range map[string]func() error{
			"opening": func() error {
				s, err := store.OpenSealed(path, c.kind, c.sealer)
				if err == nil {
					_ = s.Close()
				}
				return err
			},
			"rewriting": func() error { return store.Rewrite(path, c.kind, c.sealer, nil) },
		} {
			err := do()
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.tells) ||
				errors.Is(err, store.ErrDamaged) {
				t.Errorf("%s with %s: %v", what, name, err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Fatalf("%s with %s has changed the file (%v)", what, name, err)
			}
		}
	}
	planted(t, openSealed(t, path, sealerOf(t, keyB+keyA)), revisions)
}

// An entry that was changed, moved or replaced by a plain one is damage.
func TestADamagedEntryIsFound(t *testing.T) {
	for name, damage := range map[string]func(data *bbolt.Bucket) error{
		"changed": func(data *bbolt.Bucket) error {
			v := bytes.Clone(data.Get([]byte("k00003")))
			v[len(v)-1] ^= 1
			return data.Put([]byte("k00003"), v)
		},
		"moved": func(data *bbolt.Bucket) error {
			return data.Put([]byte("k00003"), bytes.Clone(data.Get([]byte("k00004"))))
		},
		"plain": func(data *bbolt.Bucket) error {
			return data.Put([]byte("k00003"), append(bytes.Clone(data.Get([]byte("k00003"))[:8]), "{}"...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.db")
			s := openSealed(t, path, sealerOf(t, keyA))
			plant(t, s, 10)
			must.Succeed(t, s.Close())
			db, err := bbolt.Open(path, 0o600, nil)
			must.Succeed(t, err)
			err = db.Update(func(tx *bbolt.Tx) error { return damage(tx.Bucket([]byte("data"))) })
			must.Succeed(t, errors.Join(err, db.Close()))
			if _, err := store.OpenSealed(path, "test", sealerOf(t, keyA)); !errors.Is(err, store.ErrDamaged) ||
				!strings.Contains(err.Error(), "k00003") {
				t.Errorf("opened: %v", err)
			}
		})
	}
}
