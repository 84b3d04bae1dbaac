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

	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
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
	t.Run("no key", func(t *testing.T) { etcdWithoutKey(t, openEtcd(t, inEtcd(e))) })
	t.Run("a watch that fails", func(t *testing.T) { etcdFailingWatch(t, inEtcd(e)) })
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
