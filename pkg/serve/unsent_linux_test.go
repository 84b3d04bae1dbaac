// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
)

// I14: a peer that reads nothing is sent what its own buffer takes, and the kernel holds maxUnsent more.
func TestI14WhatAPeerDoesNotReadIsBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	lis := Limit(inner, 1, 1)
	defer lis.Close()
	peer, err := net.Dial("tcp", lis.Addr().String())
	must.Succeed(t, err)
	defer peer.Close()
	must.Succeed(t, peer.(*net.TCPConn).SetReadBuffer(4<<10))
	conn, err := lis.Accept()
	must.Succeed(t, err)
	defer conn.Close()
	must.Succeed(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
	n, err := conn.Write(make([]byte, 8<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("writing to a peer that does not read: %v, want a timeout", err)
	}
	if most := 1 << 20; n > most {
		t.Errorf("%d bytes were taken for a peer that reads nothing, want at most %d", n, most)
	}
}
