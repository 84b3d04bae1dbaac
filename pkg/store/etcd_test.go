// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/store/storetest"
)

var prefixes atomic.Int32

func inEtcd(e *etcdtest.Etcd) store.EtcdOptions {
	return store.EtcdOptions{
		Endpoints: e.Endpoints(), CertFile: e.Files.Cert, KeyFile: e.Files.Key, CAFile: e.Files.CA,
		Prefix: fmt.Sprintf("/test/%d", prefixes.Add(1)), Kind: "claims", Schema: 1,
	}
}

func openEtcd(t *testing.T, o store.EtcdOptions) *store.Etcd {
	t.Helper()
	s, err := store.OpenEtcd(t.Context(), o)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(ctx context.Context, s *store.Etcd, key string) error {
	_, err := s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: key}}})
	return err
}

func TestEtcdConformance(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	open := func(t *testing.T) store.Store { return openEtcd(t, inEtcd(e)) }
	storetest.Run(t, open)
	storetest.RunShared(t, func(t *testing.T) (a, b store.Shared) {
		o := inEtcd(e)
		return openEtcd(t, o), openEtcd(t, o)
	})
	t.Run("encrypted", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) store.Store {
			o := inEtcd(e)
			o.Sealer = sealerOf(t, keyA)
			return openEtcd(t, o)
		})
	})
	t.Run("lazy", func(t *testing.T) { lazyInEtcd(t, openEtcd(t, inEtcd(e))) })
	t.Run("limits", func(t *testing.T) { etcdLimits(t, openEtcd(t, inEtcd(e))) })
	t.Run("pages", func(t *testing.T) { etcdPages(t, openEtcd(t, inEtcd(e))) })
	t.Run("layout", func(t *testing.T) { etcdLayout(t, inEtcd(e)) })
	t.Run("rotation", func(t *testing.T) { etcdRotation(t, inEtcd(e)) })
	t.Run("a key that comes late", func(t *testing.T) { etcdLateKey(t, inEtcd(e)) })
	t.Run("progress", func(t *testing.T) { etcdProgress(t, inEtcd(e)) })
	t.Run("a copy is a file", func(t *testing.T) { etcdCopy(t, inEtcd(e)) })
	t.Run("held", func(t *testing.T) { etcdHeld(t, inEtcd(e)) })
	t.Run("a key that fails", func(t *testing.T) { etcdFailingKey(t, inEtcd(e)) })
	t.Run("a watch that fails", func(t *testing.T) { etcdFailingWatch(t, inEtcd(e)) })
}

// A process knows what it committed, and asks how far all have come.
func etcdProgress(t *testing.T, o store.EtcdOptions) {
	a, b := openEtcd(t, o), openEtcd(t, o)
	if at, err := a.Reached(t.Context()); at.Commits != 0 || err != nil {
		t.Errorf("an empty store has reached %+v, %v", at, err)
	}
	first, err := store.CompareAndSwap(t.Context(), a, "k", 0, []byte("v"))
	must.Succeed(t, err)
	if a.Committed() != (store.Position{Revision: first, Commits: 1}) || b.Committed() != (store.Position{}) {
		t.Errorf("after revision %d, a has committed %+v and b %+v", first, a.Committed(), b.Committed())
	}
	if reached, err := b.Reached(t.Context()); err != nil || reached.Revision < first || reached.Commits != 1 {
		t.Errorf("b finds revision %d, want %d at least: %v", reached, first, err)
	}
}

// Lazy transactions become one of etcd. One that conflicts fails alone.
func lazyInEtcd(t *testing.T, s *store.Etcd) {
	const n = 20
	errs, revisions := make(chan error, n), make(chan uint64, n)
	for i := range n {
		go func() {
			txn := store.Txn{Puts: []store.Put{{Key: fmt.Sprint(i)}}, Lazy: true}
			if i == 7 {
				txn.If = []store.Condition{{Key: "absent", Revision: 5}}
			}
			revision, err := s.Commit(t.Context(), txn)
			if err == nil {
				revisions <- revision
			}
			errs <- err
		}()
	}
	conflicts := 0
	for range n {
		switch err := <-errs; {
		case errors.Is(err, store.ErrConflict):
			conflicts++
		case err != nil:
			t.Error(err)
		}
	}
	if entries, err := s.Range(t.Context(), "", "", 0); conflicts != 1 || len(entries) != n-1 || err != nil {
		t.Errorf("%d conflicts, %d entries, %v", conflicts, len(entries), err)
	}
	for i := range n {
		go func() {
			revision, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: fmt.Sprint("x", i)}}, Lazy: true})
			if err != nil {
				t.Error(err)
			}
			revisions <- revision
		}()
	}
	distinct := map[uint64]bool{}
	for range 2*n - 1 {
		distinct[<-revisions] = true
	}
	if len(distinct) > n+n/2 {
		t.Errorf("%d transactions for %d lazy ones", len(distinct), 2*n-1)
	}
}

func etcdLimits(t *testing.T, s *store.Etcd) {
	var many store.Txn
	for i := range 129 {
		many.Deletes = append(many.Deletes, fmt.Sprint(i))
	}
	for name, txn := range map[string]store.Txn{
		"too many": many, "too large": {Puts: []store.Put{{Key: "a", Value: make([]byte, 2<<20)}}},
	} {
		if _, err := s.Commit(t.Context(), txn); !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: "a", Value: make([]byte, 1500<<10)}}, Deletes: many.Deletes[:120]})
	must.Succeed(t, err)
	must.Succeed(t, s.Failure())
}

// A range has the entries of one revision, although others write while it is read.
func etcdPages(t *testing.T, s *store.Etcd) {
	const n, pairs = 1500, 100
	txn := store.Txn{}
	for i := range n {
		if txn.Puts = append(txn.Puts, store.Put{Key: fmt.Sprintf("k%04d", i), Value: []byte("0")}); len(txn.Puts) == pairs {
			_, err := s.Commit(t.Context(), txn)
			must.Succeed(t, err)
			txn = store.Txn{}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // the first and the last entry are always equal
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			value := fmt.Append(nil, i)
			_, _ = s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: "k0000", Value: value}, {Key: fmt.Sprintf("k%04d", n-1), Value: value}}})
		}
	}()
	for range 20 {
		entries, err := s.Range(t.Context(), "", "", 0)
		must.Succeed(t, err)
		if first, last := entries[0], entries[len(entries)-1]; len(entries) != n || string(first.Value) != string(last.Value) {
			t.Fatalf("%d entries, from %s to %s", len(entries), first.Value, last.Value)
		}
	}
	cancel()
	<-done
}

// What the layout says is held against what was given, before anything is read.
func etcdLayout(t *testing.T, o store.EtcdOptions) {
	plain := o
	openEtcd(t, plain)
	sealed := o
	sealed.Prefix += "/sealed"
	sealed.Sealer = sealerOf(t, keyA)
	openEtcd(t, sealed)
	half := o
	half.Prefix, half.Migrating = o.Prefix+"/half", true
	migrating := openEtcd(t, half)
	newer := plain
	newer.Schema = 0
	unkeyed, keyed, early := sealed, plain, half
	unkeyed.Sealer, keyed.Sealer, early.Migrating = nil, sealed.Sealer, false
	for name, tc := range map[string]struct {
		store.EtcdOptions
		want string
	}{
		"newer": {newer, "newer build"}, "no key": {unkeyed, "encrypted"}, "plain": {keyed, "migrate it"}, "half": {early, "has not ended"},
	} {
		if _, err := store.OpenEtcd(t.Context(), tc.EtcdOptions); err == nil || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), tc.Prefix) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must.Succeed(t, store.EndMigration(t.Context(), migrating))
	openEtcd(t, early)
}

func etcdRotation(t *testing.T, o store.EtcdOptions) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	keys := keyFileOf(t, path, keyA)
	o.Sealer = envelope.New(keys)
	s := openEtcd(t, o)
	for i := range 300 {
		_, err := store.CompareAndSwap(t.Context(), s, fmt.Sprint(i), 0, []byte(canary))
		must.Succeed(t, err)
	}
	must.Succeed(t, put(t.Context(), s, "empty"))
	writeKeys(t, path, keyB+keyA)
	_, err := keys.Reread()
	must.Succeed(t, err)
	if last, changed, err := s.Reseal(t.Context(), ""); last == "" || changed != 256 || err != nil {
		t.Fatalf("one batch changed %d entries up to %q, %v", changed, last, err)
	}
	if sealed, stale, err := s.CountSealed(t.Context()); sealed != 300 || stale != 44 || err != nil {
		t.Fatalf("%d of %d entries have the old key, %v", stale, sealed, err)
	}
	rotation := &store.Rotation{Keys: keys, Files: []store.Sealed{s}, Clock: clock.RealClock{}, Log: testlog.New(t)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- rotation.Run(ctx) }()
	wait.For(t, time.Minute, "every entry to have the new key", func(ctx context.Context) error {
		sealed, stale, err := s.CountSealed(ctx)
		must.Succeed(t, err)
		return wait.If(sealed == 300 && stale == 0, stale)
	})
	cancel()
	must.Succeed(t, <-done)
	o.Sealer = sealerOf(t, keyB)
	if entries, err := openEtcd(t, o).Range(t.Context(), "", "", 0); err != nil || len(entries) != 301 || string(entries[0].Value) != canary {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

// A copy is what a bbolt store of the same kind and keys reads, with the same revisions.
func etcdCopy(t *testing.T, o store.EtcdOptions) {
	o.Sealer = sealerOf(t, keyA)
	s := openEtcd(t, o)
	revision, err := store.CompareAndSwap(t.Context(), s, "a", 0, []byte(canary))
	must.Succeed(t, err)
	_, err = store.CompareAndSwap(t.Context(), s, "empty", 0, nil)
	must.Succeed(t, err)
	for n := 0; n < 4200; n += 100 { // more than a page
		var txn store.Txn
		for i := range 100 {
			txn.Puts = append(txn.Puts, store.Put{Key: fmt.Sprintf("many/%04d", n+i), Value: []byte(canary)})
		}
		_, err := s.Commit(t.Context(), txn)
		must.Succeed(t, err)
	}
	path := filepath.Join(t.TempDir(), "s.db")
	must.Succeed(t, s.CopyTo(path))
	file, err := store.OpenSealed(path, o.Kind, o.Sealer)
	must.Succeed(t, err)
	defer file.Close()
	if e, ok, err := file.Get(t.Context(), "a"); err != nil || !ok || string(e.Value) != canary || e.Revision != revision {
		t.Errorf("%+v %t %v", e, ok, err)
	}
	_, err = store.CompareAndSwap(t.Context(), file, "a", revision, nil)
	must.Succeed(t, err)
	if many, err := file.Range(t.Context(), "many/", "", 0); len(many) != 4200 || err != nil {
		t.Errorf("%d of 4200 entries, %v", len(many), err)
	}
	must.Succeed(t, s.Close())
	if err := s.CopyTo(filepath.Join(t.TempDir(), "none.db")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a copy of a closed store: %v", err)
	}
}

// With TLS both ends show a certificate. Without one nothing is read.
func TestEtcdByTLS(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{TLS: true})
	o := inEtcd(e)
	_, err := store.CompareAndSwap(t.Context(), openEtcd(t, o), "a", 0, nil)
	must.Succeed(t, err)
	o.CertFile, o.KeyFile = "", ""
	if _, err := store.OpenEtcd(t.Context(), o); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without a certificate: %v", err)
	}
}

// TestEtcdWithoutQuorum: every call ends within seconds and says why; reads that allow it go on, and so does all of it later.
func TestEtcdWithoutQuorum(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{Members: 3})
	o := inEtcd(e)
	s := openEtcd(t, o)
	_, err := store.CompareAndSwap(t.Context(), s, "a", 0, []byte("1"))
	must.Succeed(t, err)
	events := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	after, err := s.Revision()
	must.Succeed(t, err)
	go func() {
		watched <- s.Watch(ctx, "", after, func(all []store.Event) { events <- all[0].Key })
	}()
	e.Freeze(0)
	e.Stop(1)
	for name, call := range map[string]func() error{
		"get":    func() error { _, _, err := s.Get(t.Context(), "a"); return err },
		"range":  func() error { _, err := s.Range(t.Context(), "", "", 0); return err },
		"commit": func() error { _, err := store.CompareAndSwap(t.Context(), s, "a", 1, nil); return err },
		"lazy": func() error {
			_, err := s.Commit(t.Context(), store.Txn{Deletes: []string{"x"}, Lazy: true})
			return err
		},
		"open": func() error { _, err := store.OpenEtcd(t.Context(), o); return err },
	} {
		begin := time.Now()
		if err := call(); !errors.Is(err, store.ErrUnavailable) || name != "open" && !errors.Is(s.Failure(), store.ErrUnavailable) {
			t.Errorf("%s: %v, the store says %v", name, err, s.Failure())
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
	if entry, ok, err := s.Get(store.AllowStale(t.Context()), "a"); err != nil || !ok || string(entry.Value) != "1" {
		t.Errorf("a read that may be stale: %+v %t %v", entry, ok, err)
	}
	if !errors.Is(s.Failure(), store.ErrUnavailable) {
		t.Errorf("after it the store says %v", s.Failure())
	}
	e.Start(1)
	wait.For(t, time.Minute, "writes to continue", func(ctx context.Context) error { return put(ctx, s, "b") })
	must.Succeed(t, s.Failure())
	select {
	case got := <-events:
		if got != "b" {
			t.Errorf("the watch has %q", got)
		}
	case err := <-watched:
		t.Fatalf("the watch ended without a quorum: %v", err)
	}
	e.Thaw(0)
	cancel()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A watch that is behind what etcd keeps, or ahead of an etcd that was set back, is told to read everything.
func TestEtcdWatchOfUnkeptRevisions(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	s := openEtcd(t, inEtcd(e))
	for range 10 {
		must.Succeed(t, put(t.Context(), s, "a"))
	}
	revision, err := s.Revision()
	must.Succeed(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: e.Endpoints()})
	must.Succeed(t, err)
	defer client.Close()
	_, err = client.Compact(t.Context(), int64(revision))
	must.Succeed(t, err)
	if err := s.Watch(t.Context(), "", 1, func([]store.Event) {}); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("behind: %v", err)
	}
	if err := s.Watch(t.Context(), "", 1<<40, func([]store.Event) {}); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("ahead: %v", err)
	}
}

func TestEtcdOptions(t *testing.T) {
	for name, change := range map[string]func(o *store.EtcdOptions){
		`""`:                     func(o *store.EtcdOptions) { o.Endpoints = nil },
		"want https":             func(o *store.EtcdOptions) { o.Endpoints = []string{"http://etcd:2379"} },
		`"etcd:2379"`:            func(o *store.EtcdOptions) { o.Endpoints = []string{"etcd:2379"} },
		"either":                 func(o *store.EtcdOptions) { o.Endpoints = []string{"https://etcd:2379", "http://127.0.0.1:2379"} },
		"HOST:PORT":              func(o *store.EtcdOptions) { o.Endpoints = []string{"https://etcd"} },
		"both the cert":          func(o *store.EtcdOptions) { o.CertFile = "c" },
		"name and a pas":         func(o *store.EtcdOptions) { o.Username = "u" },
		`"atoll"`:                func(o *store.EtcdOptions) { o.Prefix = "atoll" },
		"need https":             func(o *store.EtcdOptions) { o.Endpoints, o.CAFile = []string{"http://localhost:2379"}, "ca" },
		`"http://10.0.0.1:2379"`: func(o *store.EtcdOptions) { o.Endpoints = []string{"http://10.0.0.1:2379"} },
		`"https://etcd:port"`:    func(o *store.EtcdOptions) { o.Endpoints = []string{"https://etcd:port"} },
		"1 to 128 bytes":         func(o *store.EtcdOptions) { o.Prefix = "/" + strings.Repeat("x", 128) },
	} {
		o := store.EtcdOptions{Endpoints: []string{"https://etcd:2379"}, Prefix: "/atoll", Kind: "claims"}
		must.Succeed(t, o.Validate())
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	longest := store.EtcdOptions{Endpoints: []string{"https://etcd:2379"}, Prefix: "/" + strings.Repeat("x", 127), Kind: "claims"}
	must.Succeed(t, longest.Validate())
}

// TestI2AnEtcdThatWasSetBackIsNotUsed: every call says so, from the first that knows; a process that starts then reads what there is.
func TestI2AnEtcdThatWasSetBackIsNotUsed(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	o := inEtcd(e)
	s := openEtcd(t, o)
	must.Succeed(t, put(t.Context(), s, "before"))
	backup := filepath.Join(t.TempDir(), "backup")
	e.Backup(backup)
	for i := range 20 {
		must.Succeed(t, put(t.Context(), s, fmt.Sprint(i)))
	}
	e.Restore(backup)
	wait.For(t, time.Minute, "the set back to be noticed", func(ctx context.Context) error {
		_, _, err := s.Get(ctx, "7")
		if err == nil {
			t.Fatal("read as if nothing had been")
		}
		return wait.If(errors.Is(err, store.ErrSetBack), err)
	})
	<-s.SetBack()
	if err := put(t.Context(), s, "after"); !errors.Is(err, store.ErrSetBack) || !errors.Is(s.Failure(), store.ErrSetBack) {
		t.Errorf("a write: %v, %v", err, s.Failure())
	}
	if err := s.Watch(t.Context(), "", 1, func([]store.Event) {}); !errors.Is(err, store.ErrSetBack) {
		t.Errorf("a watch: %v", err)
	}
	again := openEtcd(t, o)
	if entries, err := again.Range(t.Context(), "", "", 0); err != nil || len(entries) != 1 {
		t.Errorf("a process that starts then has %d entries, %v", len(entries), err)
	}
}

// TestI2AnEtcdWhoseRevisionsRoseIsNotUsed: its revision is higher than before, as after a restore with --bump-revision.
func TestI2AnEtcdWhoseRevisionsRoseIsNotUsed(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	o := inEtcd(e)
	stores := []*store.Etcd{openEtcd(t, o), openEtcd(t, o)}
	must.Succeed(t, put(t.Context(), stores[0], "before"))
	backup := filepath.Join(t.TempDir(), "backup")
	e.Backup(backup)
	for i := range 20 {
		for _, s := range stores {
			must.Succeed(t, put(t.Context(), s, fmt.Sprint(i)))
		}
	}
	before := stores[1].Committed()
	e.Restore(backup)
	other := o
	other.Prefix = "/other"
	s := openEtcd(t, other)
	for s.Committed().Revision <= before.Revision+1 {
		must.Succeed(t, put(t.Context(), s, "x"))
	}
	wait.For(t, time.Minute, "the set back to be noticed by a read", func(ctx context.Context) error {
		at, err := stores[0].Reached(ctx)
		if err == nil {
			t.Fatalf("it has come to %+v, from %+v", at, before)
		}
		return wait.If(errors.Is(err, store.ErrSetBack), err)
	})
	wait.For(t, time.Minute, "the set back to be noticed by a commit", func(context.Context) error {
		err := put(t.Context(), stores[1], "after")
		if err == nil {
			t.Fatalf("it has committed as if nothing had been: %+v", stores[1].Committed())
		}
		return wait.If(errors.Is(err, store.ErrSetBack), err)
	})
	if stores[1].Committed() != before {
		t.Errorf("its progress is %+v, and was %+v", stores[1].Committed(), before)
	}
}

// A store is held while a process leads.
func etcdHeld(t *testing.T, o store.EtcdOptions) {
	s := openEtcd(t, o)
	if held, err := s.Held(t.Context()); held || err != nil {
		t.Errorf("before: %t, %v", held, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leads, done := make(chan bool, 1), make(chan error, 1)
	go func() {
		done <- s.Lead(ctx, "sweep", func(ctx context.Context) {
			leads <- true
			<-ctx.Done()
		})
	}()
	select {
	case <-leads:
	case err := <-done:
		t.Fatalf("it ended before it led: %v", err)
	}
	if held, err := s.Held(t.Context()); !held || err != nil {
		t.Errorf("with a leader: %t, %v", held, err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wait.For(t, time.Minute, "the store to be free", func(ctx context.Context) error {
		held, err := s.Held(ctx)
		return errors.Join(err, wait.If(!held, held))
	})
}

// Reseal stops at the first entry that cannot be encrypted.
func etcdFailingKey(t *testing.T, o store.EtcdOptions) {
	provider := failingOf(t, keyA)
	o.Sealer = envelope.New(provider)
	s := openEtcd(t, o)
	for i := range 3 {
		_, err := store.CompareAndSwap(t.Context(), s, fmt.Sprint(i), 0, []byte(canary))
		must.Succeed(t, err)
	}
	provider.down.Store(true)
	if _, changed, err := s.Reseal(t.Context(), ""); !errors.Is(err, errDown) || changed != 0 || provider.tries.Load() != 1 {
		t.Errorf("%d entries were changed in %d tries, %v", changed, provider.tries.Load(), err)
	}
}

// A watch goes on after an error that may pass, from where it was. It pauses before each attempt.
func etcdFailingWatch(t *testing.T, o store.EtcdOptions) {
	provider := failingOf(t, keyA)
	o.Sealer = sealerOf(t, keyA)
	other := openEtcd(t, o)
	o.Sealer = envelope.New(provider)
	s := openEtcd(t, o)
	provider.down.Store(true)
	after, err := s.Revision()
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, ended := make(chan string, 10), make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, "", after, func(all []store.Event) { events <- all[0].Key + "=" + string(all[0].Value) })
	}()
	begin := time.Now()
	_, err = store.CompareAndSwap(t.Context(), other, "k", 0, []byte(canary))
	must.Succeed(t, err)
	wait.For(t, 20*time.Second, "the watch to try again", func(context.Context) error {
		select {
		case err := <-ended:
			t.Fatalf("the watch ended: %v", err)
		default:
		}
		return wait.If(provider.tries.Load() > 3, provider.tries.Load())
	})
	if took := time.Since(begin); took < 900*time.Millisecond { // three pauses
		t.Errorf("four attempts took %s", took)
	}
	provider.down.Store(false)
	select {
	case got := <-events:
		if got != "k="+canary {
			t.Errorf("the watch has %q", got)
		}
	case err := <-ended:
		t.Fatalf("the watch ended: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// While the member does not respond, a call ends with its caller's time, and a call with more time is tried again. A read that may be stale
// says nothing about the quorum, so only another read ends the failure.
func TestEtcdCallsThatHang(t *testing.T) {
	e := etcdtest.Start(t, etcdtest.Options{})
	s := openEtcd(t, inEtcd(e))
	must.Succeed(t, put(t.Context(), s, "a"))
	get := func(ctx context.Context, patience time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, ok, err := s.Get(ctx, "a")
		if err == nil && !ok {
			t.Error("the entry is gone")
		}
		return err
	}
	stale := store.AllowStale(t.Context())
	e.Freeze(0)
	defer e.Thaw(0)
	var err error
	for err == nil { // until it has stopped
		err = get(t.Context(), 900*time.Millisecond)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(s.Failure(), store.ErrUnavailable) {
		t.Errorf("in little time: %v, the store says %v", err, s.Failure())
	}
	if err := get(stale, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("in little time, although it may be stale: %v", err)
	}
	read := make(chan error, 1)
	go func() { read <- get(stale, time.Minute) }()
	select {
	case err := <-read:
		t.Fatalf("what may be stale, before the member responds: %v", err)
	case <-time.After(1500 * time.Millisecond): // longer than one attempt
	}
	e.Thaw(0)
	if err := <-read; err != nil || !errors.Is(s.Failure(), store.ErrUnavailable) {
		t.Errorf("what may be stale: %v, the store says %v", err, s.Failure())
	}
	wait.For(t, time.Minute, "reads to continue", func(ctx context.Context) error { return get(ctx, time.Minute) })
	must.Succeed(t, s.Failure())
}
