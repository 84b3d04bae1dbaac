// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.etcd.io/bbolt"
	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
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
	path := filepath.Join(t.TempDir(), "keys.yaml")
	writeKeys(t, path, entries)
	s, err := envelope.Open(path)
	must.Succeed(t, err)
	return s
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

// Old entries are encrypted with a new key in the background, in batches, with their revisions; then the old key may go.
func TestRotationRewritesEveryEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, keyPath := filepath.Join(dir, "s.db"), filepath.Join(dir, "keys.yaml")
		keys := keyFileOf(t, keyPath, keyA)
		s := openSealed(t, path, envelope.New(keys))
		revisions := plant(t, s, 700) // three batches
		stale := func(want int) {
			t.Helper()
			if sealed, got, err := s.CountSealed(t.Context()); err != nil || got != want || sealed != 700 {
				t.Errorf("%d of %d entries have an old key, %v; want %d of 700", got, sealed, err, want)
			}
		}
		writeKeys(t, keyPath, keyB+keyA)
		_, err := keys.Reread()
		must.Succeed(t, err)
		stale(700)
		if last, changed, err := s.Reseal(t.Context(), "empty/k99999"); err != nil || last != "k00255" || changed != 256 {
			t.Errorf("one batch changed %d entries up to %q, %v", changed, last, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		rotation := &store.Rotation{Keys: keys, Files: []store.Sealed{s}, Clock: clock.RealClock{}, Log: testlog.New(t)}
		go func() { ran <- rotation.Run(ctx) }()
		progress := func(when string, want store.Progress) {
			t.Helper()
			if got := rotation.Progress(); got != want {
				t.Errorf("%s the progress is %+v, want %+v", when, got, want)
			}
		}
		time.Sleep(17 * time.Millisecond) // four batches, mostly of empty entries
		progress("in the middle", store.Progress{Key: "b", Sealed: 324, Stale: 376})
		time.Sleep(time.Second)
		stale(0)
		progress("at the end", store.Progress{Key: "b", Sealed: 700})
		writeKeys(t, keyPath, keyA+keyB) // a running process notices
		time.Sleep(10 * time.Second)
		if keys.Current() != "a" {
			t.Errorf("key %q encrypts, want a", keys.Current())
		}
		stale(0)
		writeKeys(t, keyPath, keyB+keyA)
		time.Sleep(10 * time.Second)
		stop()
		must.Succeed(t, <-ran)
		stale(0)
		planted(t, s, revisions)
		must.Succeed(t, s.Close())
		planted(t, openSealed(t, path, sealerOf(t, keyB)), revisions)
	})
}

var errDown = errors.New("no key can be used")

// failing is a provider that fails while down is set. Its current key is then another one, so that every entry is stale.
type failing struct {
	envelope.Provider
	down  atomic.Bool
	tries atomic.Int32 // calls that failed
}

func (f *failing) Current() string {
	if f.down.Load() {
		return "another"
	}
	return f.Provider.Current()
}

func (f *failing) Wrap(ctx context.Context, dataKey []byte) (string, []byte, error) {
	if f.down.Load() {
		f.tries.Add(1)
		return "", nil, errDown
	}
	return f.Provider.Wrap(ctx, dataKey)
}

func (f *failing) Unwrap(ctx context.Context, name string, wrapped []byte) ([]byte, error) {
	if f.down.Load() {
		f.tries.Add(1)
		return nil, errDown
	}
	return f.Provider.Unwrap(ctx, name, wrapped)
}

func failingOf(t *testing.T, entries string) *failing {
	t.Helper()
	return &failing{Provider: keyFileOf(t, filepath.Join(t.TempDir(), "keys.yaml"), entries)}
}

// A new key that cannot be used is an error, and changes nothing, neither in an open file nor in one that is rewritten.
func TestRotationWithoutItsKey(t *testing.T) {
	path, provider := filepath.Join(t.TempDir(), "s.db"), failingOf(t, keyA)
	s := openSealed(t, path, envelope.New(provider))
	revisions := plant(t, s, 10)
	provider.down.Store(true)
	if _, changed, err := s.Reseal(t.Context(), ""); !errors.Is(err, errDown) || changed != 0 {
		t.Errorf("%d entries were changed, %v", changed, err)
	}
	if sealed, stale, err := s.CountSealed(t.Context()); sealed != 10 || stale != 10 || err != nil {
		t.Errorf("%d of %d entries have another key, %v", stale, sealed, err)
	}
	planted(t, s, revisions)
	must.Succeed(t, s.Close())
	if _, _, err := s.Reseal(t.Context(), ""); !errors.Is(err, store.ErrClosed) {
		t.Errorf("in a closed file: %v", err)
	}
	before, err := os.ReadFile(path)
	must.Succeed(t, err)
	if err := store.Rewrite(path, "test", sealerOf(t, keyA), envelope.New(provider)); !errors.Is(err, errDown) {
		t.Errorf("rewriting: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("rewriting has changed the file: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside the file: %v, %v", left, err)
	}
	planted(t, openSealed(t, path, sealerOf(t, keyA)), revisions)
}

// leaving is a provider whose caller leaves while it encrypts. Its current key is another one, so that every entry is stale.
type leaving struct {
	envelope.Provider
	leave context.CancelFunc
}

func (*leaving) Current() string { return "another" }

func (l *leaving) Wrap(ctx context.Context, dataKey []byte) (string, []byte, error) {
	l.leave()
	return l.Provider.Wrap(ctx, dataKey)
}

// A caller may leave while its entries are encrypted. The commit goes on, and shares no variable with it. Only the race detector sees a
// shared variable.
func TestRotationWhoseCallerLeaves(t *testing.T) {
	path, provider := filepath.Join(t.TempDir(), "s.db"), failingOf(t, keyA)
	s := openSealed(t, path, envelope.New(provider))
	revisions := plant(t, s, 10)
	must.Succeed(t, s.Close())
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	s = openSealed(t, path, envelope.New(&leaving{provider, leave}))
	if last, _, err := s.Reseal(ctx, ""); err != nil && !errors.Is(err, context.Canceled) || last != "" {
		t.Errorf("up to %q, %v", last, err)
	}
	must.Succeed(t, s.Close()) // waits for the commit
	planted(t, openSealed(t, path, sealerOf(t, keyA)), revisions)
}

// A file with more entries than one transaction reads is encrypted in full and counted in full.
func TestRotationCountsEveryPage(t *testing.T) {
	const n = 4096 + 100
	path, keyPath := filepath.Join(t.TempDir(), "s.db"), filepath.Join(t.TempDir(), "keys.yaml")
	s := openSealed(t, path, nil)
	var txn store.Txn
	for i := range n {
		txn.Puts = append(txn.Puts, store.Put{Key: fmt.Sprintf("k%05d", i), Value: []byte(canary)})
	}
	_, err := s.Commit(t.Context(), txn)
	must.Succeed(t, errors.Join(err, s.Close()))
	keys := keyFileOf(t, keyPath, keyA)
	s = openSealed(t, path, envelope.New(keys))
	for entries, stale := range map[string]int{keyA: 0, keyB + keyA: n} {
		writeKeys(t, keyPath, entries)
		_, err = keys.Reread()
		must.Succeed(t, err)
		if sealed, got, err := s.CountSealed(t.Context()); sealed != n || got != stale || err != nil {
			t.Errorf("%d of %d entries have another key, %v; want %d of %d", got, sealed, err, stale, n)
		}
	}
}

// counted counts the calls of a file.
type counted struct {
	store.Sealed
	counts, reseals atomic.Int32
}

func (c *counted) CountSealed(ctx context.Context) (sealed, stale int, err error) {
	c.counts.Add(1)
	return c.Sealed.CountSealed(ctx)
}

func (c *counted) Reseal(ctx context.Context, after string) (last string, changed int, err error) {
	c.reseals.Add(1)
	return c.Sealed.Reseal(ctx, after)
}

// Rotation counts all entries again at every 60th reread, and at the next one after a failure. A count without stale entries is not logged.
func TestRotationLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		keyPath := filepath.Join(dir, "keys.yaml")
		keys := keyFileOf(t, keyPath, keyA)
		provider := &failing{Provider: keys}
		first := &counted{Sealed: openSealed(t, filepath.Join(dir, "1.db"), envelope.New(provider))}
		second := &counted{Sealed: openSealed(t, filepath.Join(dir, "2.db"), envelope.New(keys))}
		plant(t, first.Sealed.(*store.Bolt), 3)
		plant(t, second.Sealed.(*store.Bolt), 5)
		var done, failed atomic.Int32
		log := funcr.New(func(_, args string) {
			if strings.Contains(args, "Every entry") {
				done.Add(1)
			}
			if strings.Contains(args, "still encrypted with another key") {
				failed.Add(1)
			}
		}, funcr.Options{})
		rotation := &store.Rotation{Keys: keys, Files: []store.Sealed{first, second}, Clock: clock.RealClock{}, Log: log}
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- rotation.Run(ctx) }()
		type seen struct {
			First, Second, Resealed, Done, Failed int32
			store.Progress
		}
		after := func(pause time.Duration, want seen) {
			t.Helper()
			time.Sleep(pause)
			synctest.Wait()
			got := seen{
				first.counts.Load(), second.counts.Load(), first.reseals.Load() + second.reseals.Load(), done.Load(), failed.Load(),
				rotation.Progress(),
			}
			if got != want {
				t.Errorf("there is %+v, want %+v", got, want)
			}
		}
		old, mixed, all := store.Progress{Key: "a", Sealed: 8}, store.Progress{Key: "b", Sealed: 5, Stale: 3}, store.Progress{Key: "b", Sealed: 8}
		after(0, seen{First: 1, Second: 1, Done: 2, Progress: old})
		after(294*time.Second, seen{First: 1, Second: 1, Done: 2, Progress: old})
		after(2*time.Second, seen{First: 2, Second: 2, Done: 2, Progress: old}) // the 60th, after 295 s
		provider.down.Store(true)
		writeKeys(t, keyPath, keyB+keyA)
		after(5*time.Second, seen{First: 3, Second: 2, Resealed: 1, Done: 2, Failed: 1, Progress: mixed})
		provider.down.Store(false)
		after(5*time.Second, seen{First: 4, Second: 3, Resealed: 3, Done: 4, Failed: 1, Progress: all})
		after(30*time.Second, seen{First: 4, Second: 3, Resealed: 3, Done: 4, Failed: 1, Progress: all})
		stop()
		must.Succeed(t, <-ran)
	})
}
