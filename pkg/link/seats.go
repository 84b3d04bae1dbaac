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

// How many frames without data a cluster may send at once, then each second (I14); because gRPC takes a microsecond for each, and reads on
// for a second after it has refused a connection. A worker that takes data at full speed sends a tenth.
const (
	framesAtOnce    = 40_000
	framesPerSecond = 20_000
)

// seats counts connections by the identity of their certificate, and holds up identities that send many frames without data.
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
	return &seated{
		Conn: conn, leave: sync.OnceFunc(func() { s.Leave(who) }), heads: http2frames.AfterPreface(), frames: s.frames.of(who),
	}, nil
}

// seated is a connection that is counted.
type seated struct {
	net.Conn
	leave  func()
	heads  http2frames.Heads
	frames *rate.Limiter
}

// Read waits for the frames without data that it has read.
func (c *seated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	without := 0
	c.heads.Pass(b[:n], func(kind, _ byte, length int, _ uint32) {
		if kind != http2frames.Data || length == 0 {
			without++
		}
	})
	if without > 0 { // fails only for more than framesAtOnce
		_ = c.frames.WaitN(context.Background(), min(without, framesAtOnce))
	}
	return n, err
}

func (c *seated) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
