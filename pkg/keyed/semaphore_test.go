// SPDX-License-Identifier: Apache-2.0

package keyed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/e2e/must"
)

// A key with many operations waits for its own, and delays no other key. What does not wait any more takes no place.
func TestI14AKeyRunsFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce = 4
		s := Semaphore{AtOnce: atOnce}
		var releases []func()
		for range atOnce {
			release, err := s.Acquire(t.Context(), "mallory")
			must.Succeed(t, err)
			releases = append(releases, release)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the caller has gone"))
		defer cancel()
		if _, err := s.Acquire(ctx, "mallory"); err == nil || err.Error() != "the caller has gone" {
			t.Fatalf("one more got %v, want its context's cause", err)
		}
		release, err := s.Acquire(t.Context(), "ann")
		must.Succeed(t, err)
		release()
		waiting := make(chan error)
		go func() {
			release, err := s.Acquire(t.Context(), "mallory")
			if err == nil {
				defer release()
			}
			waiting <- err
		}()
		synctest.Wait()
		select {
		case err := <-waiting:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		releases[0]()
		releases[0]() // a second time frees nothing
		must.Succeed(t, <-waiting)
		for _, release := range releases {
			release()
		}
		if len(s.of) > 0 {
			t.Errorf("%d keys are kept", len(s.of))
		}
	})
}
