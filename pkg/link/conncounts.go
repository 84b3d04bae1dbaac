// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"net"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"

	"navix.sh/atoll/pkg/http2frames"
	"navix.sh/atoll/pkg/tally"
)

// MaxConnectionsPerCluster bounds the connections with the certificates of one cluster (I14). A worker has two, and a few more while its
// replicas replace each other or while a hub has not noticed that a connection ended.
const MaxConnectionsPerCluster = 512

// Burst and rate of a cluster's frames with little or no data (I14). gRPC takes a microsecond for each such frame, and reads on for a
// second after it has refused a connection. A worker whose tunnels carry 256 MiB per second sends a fifth of this rate.
const (
	framesAtOnce    = 40_000
	framesPerSecond = 20_000
	littleData      = 64 // bytes
)

// connCounts counts connections by the identity of their certificate, and delays identities that send many small frames. All replicas of
// the hub have the same identity, and are counted and delayed like one cluster.
type connCounts struct {
	*tally.Tally[Identity]
	frames *limiters[Identity]
}

func newConnCounts() connCounts {
	return connCounts{tally.New[Identity](MaxConnectionsPerCluster), newLimiters[Identity](framesPerSecond, framesAtOnce, maxPaced)}
}

// admit counts a connection until it is closed. It closes a connection beyond the limit.
func (c connCounts) admit(conn net.Conn, info credentials.AuthInfo) (net.Conn, error) {
	var who Identity // stays zero for a certificate without an identity
	if secure, ok := info.(credentials.TLSInfo); ok && len(secure.State.PeerCertificates) > 0 {
		if named, err := IdentityOf(secure.State.PeerCertificates[0]); err == nil {
			who = named
		}
	}
	if !c.Enter(who) {
		_ = conn.Close()
		return nil, fmt.Errorf("%s has %d connections already", who, MaxConnectionsPerCluster)
	}
	ctx, cancel := context.WithCancel(context.Background())
	leave := sync.OnceFunc(func() {
		cancel()
		c.Leave(who)
	})
	return &countedConn{Conn: conn, ctx: ctx, leave: leave, heads: http2frames.AfterPreface(), frames: c.frames.of(who)}, nil
}

// countedConn is a connection that connCounts counts.
type countedConn struct {
	net.Conn
	ctx    context.Context // ends with Close
	leave  func()
	heads  http2frames.Heads
	frames *rate.Limiter
}

// Read blocks until the rate limit admits the small frames it has read, or until Close.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	small := 0
	c.heads.Pass(b[:n], func(kind, _ byte, length int, _ uint32) {
		if kind != http2frames.Data || length < littleData {
			small++
		}
	})
	if small > 0 && err == nil {
		err = c.frames.WaitN(c.ctx, min(small, framesAtOnce))
	}
	return n, err
}

func (c *countedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
