// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(fullEnv); path != "" {
		fillTheDisk(path)
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, path string) *store.Bolt {
	t.Helper()
	return openSealed(t, path, nil)
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, filepath.Join(t.TempDir(), "s.db")) })
}

func TestReopenKeepsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "s.db")
	s := open(t, path)
	rev, err := store.CompareAndSwap(t.Context(), s, "a", 0, []byte("1"))
	must.Succeed(t, err)
	must.Succeed(t, s.Close())
	s = open(t, path)
	e, ok, err := s.Get(t.Context(), "a")
	if err != nil || !ok || e.Revision != rev || string(e.Value) != "1" {
		t.Fatalf("after reopening: %+v %t %v", e, ok, err)
	}
	if next, err := store.CompareAndSwap(t.Context(), s, "b", 0, nil); err != nil || next <= rev {
		t.Fatalf("revision %d after %d: %v", next, rev, err)
	}
}

func TestOpenRefusesWithThePath(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, path string)
		want  string
	}{
		"not a store file": {overwrite(0, []byte("hello, this is no database at all")), "damaged"},
		"truncated":        {truncate(3 * 4096), "damaged"},
		"cut to one page":  {truncate(4096), "damaged"},
		"cut, and locked":  {lockAndTruncate, "another process"},
		"a revision ahead": {setIn("data", "k000", binary.BigEndian.AppendUint64(nil, 99)), "damaged"},
		"no revision":      {setIn("data", "k000", []byte("short")), "damaged"},
		"a page of noise":  {overwriteDataPages, "damaged"},
		"newer schema":     {setIn("meta", "schema", binary.BigEndian.AppendUint64(nil, 99)), "newer build"},
		"other kind":       {setIn("meta", "kind", []byte("registry")), `holds "registry"`},
		"lost schema":      {setIn("meta", "schema", nil), "damaged"},
		"locked":           {lock, "another process"},
		"a directory":      {replaceWithDirectory, "directory"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "claims.db")
			fill(t, path)
			tc.spoil(t, path)
			s, err := store.OpenBolt(path, "test")
			if err == nil {
				t.Fatal("opened", s.Close())
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %q names not both %s and %q", err, path, tc.want)
			}
			if errors.Is(err, store.ErrDamaged) != (tc.want == "damaged") || store.InUse(path) != (tc.want == "another process") {
				t.Errorf("damaged: %t, in use: %t: %v", errors.Is(err, store.ErrDamaged), store.InUse(path), err)
			}
		})
	}
}

func fill(t *testing.T, path string) {
	t.Helper()
	s := open(t, path)
	for i := range 40 {
		_, err := store.CompareAndSwap(t.Context(), s, fmt.Sprintf("k%03d", i), 0, make([]byte, 2000))
		must.Succeed(t, err)
	}
	must.Succeed(t, s.Close())
}

func overwrite(offset int64, with []byte) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must.Succeed(t, err)
		noise := append(with, make([]byte, 2*4096-len(with))...)
		_, err = f.WriteAt(noise, offset)
		must.Succeed(t, err)
		must.Succeed(t, f.Close())
	}
}

func overwriteDataPages(t *testing.T, path string) {
	info, err := os.Stat(path)
	must.Succeed(t, err)
	for offset := int64(2 * 4096); offset < info.Size()-2*4096; offset += 2 * 4096 {
		overwrite(offset, []byte(strings.Repeat("\xa5\x5a\x13", 2000)))(t, path)
	}
}

func truncate(size int64) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		must.Succeed(t, os.Truncate(path, size))
	}
}

func setIn(bucket, key string, value []byte) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		db, err := bbolt.Open(path, 0o600, nil)
		must.Succeed(t, err)
		err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), value) })
		must.Succeed(t, errors.Join(err, db.Close()))
	}
}

func lock(t *testing.T, path string) { open(t, path) }

func lockAndTruncate(t *testing.T, path string) {
	lock(t, path)
	truncate(4096)(t, path)
}

func replaceWithDirectory(t *testing.T, path string) {
	t.Helper()
	must.Succeed(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
}

// BenchmarkCommit measures grouped commits of entries like a claim's, plain and encrypted.
func BenchmarkCommit(b *testing.B) {
	for _, sealed := range []bool{false, true} {
		for _, writers := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("encrypted=%t/writers=%d", sealed, writers), func(b *testing.B) { benchmarkCommit(b, sealed, writers) })
		}
	}
}

func benchmarkCommit(b *testing.B, sealed bool, writers int) {
	var sealer *envelope.Sealer
	if sealed {
		sealer = sealerOf(b, keyA)
	}
	s, err := store.OpenSealed(filepath.Join(b.TempDir(), "s.db"), "test", sealer)
	must.Succeed(b, err)
	defer func() { _ = s.Close() }()
	work := make(chan int)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := range work {
				key := fmt.Sprintf("claim/%08d", i)
				if _, err := store.CompareAndSwap(b.Context(), s, key, 0, make([]byte, 400)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := 0; b.Loop(); i++ {
		work <- i
	}
	close(work)
	wg.Wait()
}
