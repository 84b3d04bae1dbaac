// SPDX-License-Identifier: Apache-2.0

package podtunnel_test

import (
	"io"
	"net"
	"strconv"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// A sandbox whose caller never gets it ends by its first-activity timeout, so what the hub does for that caller must not count.
func TestPreparingIsNoActivity(t *testing.T) {
	w := newWorld(t)
	number, err := strconv.Atoi(listen(t, func(conn net.Conn) {
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	}))
	w.Must(err)
	sandbox := w.claim()
	for _, preparing := range []bool{true, false} {
		what := &federationv1.ReachCall{
			Preparing: preparing, What: &federationv1.ReachCall_Port{Port: &federationv1.PortReach{Port: int32(number)}},
		}
		tunnel, err := w.service.Open(t.Context(), sandbox.GetId(), what)
		w.Must(err)
		w.Must(tunnel.Send([]byte("x")))
		if message, err := tunnel.Recv(); err != nil || string(message) != "x" {
			t.Errorf("received %q, %v", message, err)
		}
		tunnel.Close(nil)
		active, err := w.activity.GetLastActive(t.Context())
		w.Must(err)
		if _, noted := active[sandbox.GetId()]; noted == preparing {
			t.Errorf("preparing %t: activity is noted: %t", preparing, noted)
		}
		got, err := w.claims.Get(t.Context(), sandbox.GetId())
		w.Must(err)
		if preparing && got.GetLastActiveAt().AsTime().After(sandbox.GetLastActiveAt().AsTime()) {
			t.Errorf("the record is of activity at %s", got.GetLastActiveAt().AsTime())
		}
	}
}
