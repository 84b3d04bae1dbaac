// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"navix.sh/atoll/e2e/etcdtest"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/store"
)

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
