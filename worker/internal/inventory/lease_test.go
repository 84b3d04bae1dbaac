// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/worker/internal/inventory/inventorytest"
)

func TestAwaitLease(t *testing.T) {
	for name, tc := range map[string]struct {
		lapsed time.Duration // 0: it is held
		leaves time.Duration // 0: the caller does not
		after  time.Duration
		want   bool
	}{
		"held":                          {0, 0, 0, true},
		"renewed in time":               {500 * time.Millisecond, 0, 600 * time.Millisecond, true},
		"renewed too late":              {time.Minute, 0, 3 * time.Second, false},
		"its caller leaves":             {time.Minute, time.Second, time.Second, false},
		"its caller leaves once it was": {450 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inventorytest.New(t)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if tc.lapsed > 0 {
					s.Lease.Lapsed.Store(true)
					time.AfterFunc(tc.lapsed, func() { s.Lease.Lapsed.Store(false) })
				}
				if tc.leaves > 0 {
					time.AfterFunc(tc.leaves, leave)
				}
				began := time.Now()
				if got := s.AwaitLease(ctx, 3*time.Second); got != tc.want || time.Since(began) != tc.after {
					t.Errorf("%t after %s, want %t after %s", got, time.Since(began), tc.want, tc.after)
				}
			})
		})
	}
}

// I1: a term that is suspended before it serves, because etcd was restored while it listed the Pods, never serves.
func TestI1ATermThatIsSuspendedBeforeItServesStaysSuspended(t *testing.T) {
	for name, tc := range map[string]struct{ suspended, want bool }{
		"not suspended": {false, true},
		"suspended":     {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inventorytest.New(t)
				if tc.suspended {
					s.Suspend()
				}
				s.Lead()
				if got := s.Serving(); got != tc.want {
					t.Errorf("it serves: %t, want %t", got, tc.want)
				}
			})
		})
	}
}
