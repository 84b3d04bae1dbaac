// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// MaxConnectionsPerCluster bounds the connections with the certificates of one cluster (I14). A worker has two, and a few more while
// replicas replace each other or a hub has not noticed the end of a connection.
const MaxConnectionsPerCluster = 512

// seats counts connections by the identity of their certificate. Its zero value is ready.
type seats struct {
	mu    sync.Mutex
	taken map[Identity]int
}

// seat counts a connection until it is closed. It closes one too many.
func (s *seats) seat(conn net.Conn, info credentials.AuthInfo) (net.Conn, error) {
	var who Identity // of no certificate that names one, too
	if secure, ok := info.(credentials.TLSInfo); ok && len(secure.State.PeerCertificates) > 0 {
		if named, err := IdentityOf(secure.State.PeerCertificates[0]); err == nil {
			who = named
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[who] >= MaxConnectionsPerCluster {
		_ = conn.Close()
		return nil, fmt.Errorf("%s has %d connections already", who, MaxConnectionsPerCluster)
	}
	if s.taken == nil {
		s.taken = map[Identity]int{}
	}
	s.taken[who]++
	return &seated{Conn: conn, leave: sync.OnceFunc(func() { s.leave(who) })}, nil
}

func (s *seats) leave(who Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[who]--; s.taken[who] == 0 {
		delete(s.taken, who)
	}
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
