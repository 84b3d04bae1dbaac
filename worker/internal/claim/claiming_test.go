// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// TestCallsOfTheHubWithAPodAreClaiming: from when their claim has a Pod until they return, and no longer.
func TestCallsOfTheHubWithAPodAreClaiming(t *testing.T) {
	keyed := func(c *Claim) {
		c.Request.ClaimKey, c.KeyHash, c.Attempt = "k", sandbox.KeyHash("red", "default", "k"), 1
	}
	want := func(s *station, when string, idle, claiming int32) {
		s.t.Helper()
		synctest.Wait()
		if got := s.stats(); got.ReadyIdle != idle || got.Claiming != claiming {
			s.t.Errorf("%s: %d idle, %d claiming; want %d and %d", when, got.ReadyIdle, got.Claiming, idle, claiming)
		}
	}
	two := func(t *testing.T) *station {
		s := newStation(t, 8)
		for _, name := range []string{"a", "b"} {
			s.Appear(s.IdlePod(name))
		}
		return s
	}
	t.Run("while its sandbox starts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := two(t)
			claimed := s.swapped(func(*Claim) {})
			want(s, "starting", 1, 1)
			s.failStart("b") // what was idle last is handed out first
			want(s, "starting in another Pod", 0, 1)
			s.failStart("a")
			want(s, "waiting for a third", 0, 0)
			time.Sleep(time.Minute)
			<-claimed.done
			want(s, "after its end", 0, 0)
		})
	})
	t.Run("not for the local API", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := two(t)
			claimed := s.swapped(func(c *Claim) { c.Local = true })
			want(s, "starting", 1, 0)
			time.Sleep(time.Minute)
			<-claimed.done
		})
	})
	t.Run("with a key, as many as its calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStation(t, 8)
			first := s.swapped(keyed)
			second := s.swapped(keyed)
			local := s.swapped(func(c *Claim) {
				keyed(c)
				c.Local = true
			})
			want(s, "waiting", 0, 0)
			s.Appear(s.IdlePod("a"))
			want(s, "starting", 0, 2)
			s.failStart("a")
			<-first.done
			<-second.done
			<-local.done
			want(s, "after its end", 0, 0)
		})
	})
	t.Run("with a key whose sandbox starts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := two(t)
			s.swapped(func(c *Claim) {
				keyed(c)
				c.Request.Wait = sandboxv1.CreateSandboxRequest_ASSIGNED
			})
			want(s, "assigned", 1, 0)
			again := s.swapped(keyed)
			want(s, "asked for again", 1, 1)
			s.failStart("b")
			<-again.done
			want(s, "after its end", 1, 0)
		})
	})
	t.Run("without a caller", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStation(t, 8)
			ctx, leave := context.WithCancel(t.Context())
			left := s.begin(ctx, s.keyed("k", 1))
			synctest.Wait()
			leave()
			<-left.done
			s.Appear(s.IdlePod("a"))
			want(s, "a Pod taken without a caller", 0, 0)
		})
	})
	t.Run("while a write is refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := two(t)
			answer := make(chan struct{})
			s.API.Respond(func(int, func() (*http.Response, error)) (*http.Response, error) {
				<-answer
				return s.API.Status(http.StatusForbidden, "")
			})
			claimed := s.swapped(func(*Claim) {})
			want(s, "under way", 1, 1)
			close(answer)
			<-claimed.done
			if claimed.err == nil {
				t.Error("it was written")
			}
			want(s, "after its end", 2, 0)
		})
	})
}
