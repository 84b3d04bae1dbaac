// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

type ruler struct {
	address string
	self    bool
}

func (r ruler) Address() (string, bool) { return r.address, r.self }

// A replica that may replace another one has its records, or cannot get them.
func TestWhenAReplicaIsReady(t *testing.T) {
	for name, tc := range map[string]struct {
		leader ruler
		caught bool
		after  time.Duration // that it is ready
	}{
		"it leads":                           {ruler{"a:1", true}, false, 0},
		"it has all":                         {ruler{"b:1", false}, true, 0},
		"no leader, or none with an address": {ruler{}, false, unledPatience},
		"the leader does not answer":         {ruler{"b:1", false}, false, readyPatience},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &Peers{opts: PeerOptions{Leader: tc.leader, Clock: clock.RealClock{}}, began: time.Now(), caught: tc.caught}
			if tc.after > 0 {
				time.Sleep(tc.after - time.Second)
				if p.Caught() {
					t.Errorf("%s: ready too early", name)
				}
				time.Sleep(2 * time.Second)
			}
			if !p.Caught() {
				t.Errorf("%s: not ready after %s", name, tc.after)
			}
		})
	}
}
