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

// MaxConnectionsPerCluster bounds the connections with the certificates of one cluster (I14). A worker has two, and a few more while
// replicas replace each other or a hub has not noticed the end of a connection.
const MaxConnectionsPerCluster = 512

// How many frames with little or no data a cluster may send at once, then each second (I14); because gRPC takes a microsecond for each,
// and reads on for a second after it has refused a connection. A worker whose tunnels carry 256 MiB a second sends a fifth.
const (
	framesAtOnce    = 40_000
	framesPerSecond = 20_000
	littleData      = 64 // bytes
)

// seats counts connections by the identity of their certificate, and holds up identities that send many small frames. Replicas of the hub
// have one identity, and are counted and held up as a cluster is.
type seats struct {
	*tally.Tally[Identity]
	frames *limiters[Identity]
}

func newSeats() seats {
	return seats{tally.New[Identity](MaxConnectionsPerCluster), newLimiters[Identity](framesPerSecond, framesAtOnce, maxPaced)}
}

// seat counts a connection until it is closed. It closes one too many.
func (s seats) seat(conn net.Conn, info credentials.AuthInfo) (net.Conn, error) {
	var who Identity // of no certificate that names one, too
	if secure, ok := info.(credentials.TLSInfo); ok && len(secure.State.PeerCertificates) > 0 {
		if named, err := IdentityOf(secure.State.PeerCertificates[0]); err == nil {
			who = named
		}
	}
	if !s.Enter(who) {
		_ = conn.Close()
		return nil, fmt.Errorf("%s has %d connections already", who, MaxConnectionsPerCluster)
	}
	ctx, cancel := context.WithCancel(context.Background())
	leave := sync.OnceFunc(func() {
		cancel()
		s.Leave(who)
	})
	return &seated{Conn: conn, ctx: ctx, leave: leave, heads: http2frames.AfterPreface(), frames: s.frames.of(who)}, nil
}

// seated is a connection that is counted.
type seated struct {
	net.Conn
	ctx    context.Context // ends with Close
	leave  func()
	heads  http2frames.Heads
	frames *rate.Limiter
}

// Read waits for the small frames that it has read, until Close.
func (c *seated) Read(b []byte) (int, error) {
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

func (c *seated) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
