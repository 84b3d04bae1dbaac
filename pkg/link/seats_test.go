// SPDX-License-Identifier: Apache-2.0

package link

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"navix.sh/atoll/e2e/must"
)

// One cluster's connections take no other's place, and a closed one makes room.
func TestI14AClustersConnectionsAreBounded(t *testing.T) {
	s := newSeats()
	connect := func(cluster string) (net.Conn, net.Conn, error) {
		ours, theirs := net.Pipe()
		name := &url.URL{Scheme: "spiffe", Host: "atoll.navix.sh", Path: "/cluster/" + cluster}
		info := credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{{URIs: []*url.URL{name}}}}}
		conn, err := s.seat(ours, info)
		return conn, theirs, err
	}
	first, _, err := connect("greedy")
	for range MaxConnectionsPerCluster - 1 {
		if _, _, more := connect("greedy"); err == nil {
			err = more
		}
	}
	must.Succeed(t, err)
	_, theirs, err := connect("greedy")
	_ = theirs.SetReadDeadline(time.Now().Add(time.Second))
	if _, end := theirs.Read(make([]byte, 1)); err == nil || !errors.Is(end, io.EOF) {
		t.Errorf("one more connection than a cluster may have: %v, %v", err, end)
	}
	other, _, err := connect("other")
	if err != nil {
		t.Fatalf("another cluster: %v", err)
	}
	_, _ = first.Close(), first.Close()
	if _, _, err = connect("greedy"); err != nil {
		t.Errorf("in the place of a closed one: %v", err)
	}
	if _, _, err = connect("greedy"); err == nil {
		t.Error("a connection that was closed twice makes room for two")
	}
	_ = other.Close()
	if s.Len() != 1 {
		t.Errorf("%d clusters are remembered (I10), want 1", s.Len())
	}
}
