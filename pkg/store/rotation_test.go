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
	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
)

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
		changeKeys(t, keys, keyPath, keyB+keyA)
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
	path, provider := filepath.Join(t.TempDir(), "s.db"), keyFileOf(t, filepath.Join(t.TempDir(), "keys.yaml"), keyA)
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
		changeKeys(t, keys, keyPath, entries)
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
