// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"

	"navix.sh/atoll/pkg/tally"
)

// MaxConnectionsPerCluster bounds the connections with the certificates of one cluster (I14). A worker has two, and a few more while
// replicas replace each other or a hub has not noticed the end of a connection.
const MaxConnectionsPerCluster = 512

// seats counts connections by the identity of their certificate.
type seats struct{ *tally.Tally[Identity] }

func newSeats() seats { return seats{tally.New[Identity](MaxConnectionsPerCluster)} }

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
	return &seated{Conn: conn, leave: sync.OnceFunc(func() { s.Leave(who) })}, nil
}

// seated is a connection that is counted.
type seated struct {
	net.Conn
	leave func()
}

func (c *seated) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
