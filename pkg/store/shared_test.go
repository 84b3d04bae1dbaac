// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/store"
)

// KeepFollowing loads again a second after a failure, passes later changes, and returns when the store is closed.
func TestKeepFollowingLoadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cannot := errors.New("cannot")
		var loads, failures, changes atomic.Int32
		done := make(chan struct{})
		go func() {
			defer close(done)
			store.KeepFollowing(ctx, s, store.FollowOptions{
				Prefix: "x/",
				Load: func(context.Context) error {
					if loads.Add(1) == 1 {
						return cannot
					}
					return nil
				},
				Changed: func(events []store.Event) { changes.Add(int32(len(events))) },
				Failed: func(err error) {
					if failures.Add(1); !errors.Is(err, cannot) {
						t.Errorf("failed with %v", err)
						cancel() // otherwise it never returns
					}
				},
				Clock: clock.RealClock{},
			})
		}()
		seen := func(when string, wantLoads, wantFailures, wantChanges int32) {
			t.Helper()
			synctest.Wait()
			if l, f, c := loads.Load(), failures.Load(), changes.Load(); l != wantLoads || f != wantFailures || c != wantChanges {
				t.Errorf("%s: %d loads, %d failures, %d changes, want %d, %d and %d", when, l, f, c, wantLoads, wantFailures, wantChanges)
			}
		}
		seen("at first", 1, 1, 0)
		time.Sleep(time.Second)
		seen("a second later", 2, 1, 0)
		_, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: "x/1"}, {Key: "y"}}})
		must.Succeed(t, err)
		seen("after a change", 2, 1, 1)
		must.Succeed(t, s.Close())
		<-done
		seen("closed", 2, 1, 1)
	})
}
