// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
)

// A replica that lacks the key of what another one has written is told so, and reads everything once it has the key.
func etcdLateKey(t *testing.T, o store.EtcdOptions) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	keys := keyFileOf(t, path, keyA)
	late, ahead := o, o
	late.Sealer, ahead.Sealer = envelope.New(keys), sealerOf(t, keyB+keyA)
	s, other := openEtcd(t, late), openEtcd(t, ahead)
	loaded, failed, done := make(chan int, 100), make(chan error, 100), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	load := func(ctx context.Context) error {
		entries, err := s.Range(ctx, "", "", 0)
		if err == nil {
			loaded <- len(entries)
		}
		return err
	}
	go func() {
		defer close(done)
		store.KeepFollowing(ctx, s, store.FollowOptions{
			Load: load, Changed: func([]store.Event) {}, Failed: func(err error) { failed <- err }, Clock: clock.RealClock{},
		})
	}()
	if n := <-loaded; n != 0 {
		t.Errorf("%d entries of an empty store", n)
	}
	_, err := store.CompareAndSwap(t.Context(), other, "k", 0, []byte(canary))
	must.Succeed(t, err)
	wait.For(t, 20*time.Second, "the missing key to be told", func(ctx context.Context) error {
		select {
		case err := <-failed:
			return wait.If(errors.Is(err, envelope.ErrNoKey), err)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	changeKeys(t, keys, path, keyA+keyB)
	if n := <-loaded; n != 1 {
		t.Errorf("%d entries once the key is there", n)
	}
	if n := len(failed); n > 20 {
		t.Errorf("%d more failures: it does not pause", n)
	}
	cancel()
	<-done
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
	changeKeys(t, keys, path, keyB+keyA)
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
	last, changed, err := s.Reseal(t.Context(), "")
	if !errors.Is(err, errDown) || last != "" || changed != 0 || provider.tries.Load() != 1 {
		t.Errorf("%d entries up to %q were changed in %d tries, %v", changed, last, provider.tries.Load(), err)
	}
}

// A store without a key has nothing to encrypt, so Reseal makes no call: it would fail here.
func etcdWithoutKey(t *testing.T, s *store.Etcd) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if last, changed, err := s.Reseal(ctx, ""); last != "" || changed != 0 || err != nil {
		t.Errorf("encrypting a store without a key: %d entries up to %q, %v", changed, last, err)
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
