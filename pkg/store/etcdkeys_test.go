// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
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
	writeKeys(t, path, keyA+keyB)
	_, err = keys.Reread()
	must.Succeed(t, err)
	if n := <-loaded; n != 1 {
		t.Errorf("%d entries once the key is there", n)
	}
	if n := len(failed); n > 20 {
		t.Errorf("%d more failures: it does not pause", n)
	}
	cancel()
	<-done
}
