// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/http2frames"
)

// shown is what a cluster's certificate shows.
func shown(cluster string) credentials.TLSInfo {
	name := &url.URL{Scheme: "spiffe", Host: "atoll.navix.sh", Path: "/cluster/" + cluster}
	return credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{{URIs: []*url.URL{name}}}}}
}

// One cluster's connections take no other's place, and a closed one makes room.
func TestI14AClustersConnectionsAreBounded(t *testing.T) {
	s := newConnCounts()
	connect := func(cluster string) (net.Conn, net.Conn, error) {
		ours, theirs := net.Pipe()
		conn, err := s.admit(ours, shown(cluster))
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

// sent is a connection on which a peer has sent some bytes.
type sent struct {
	net.Conn
	*bytes.Reader
}

func (s sent) Read(b []byte) (int, error) { return s.Reader.Read(b) }

func (s sent) Close() error { return nil }

// A cluster that sends pings without end is read slowly, on all its connections together; data and other clusters are not held up.
func TestI14AClustersFramesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newConnCounts()
		read := func(cluster string, frame []byte, times int) time.Duration {
			began := time.Now()
			text := append([]byte(http2frames.Preface), bytes.Repeat(frame, times)...)
			conn, err := s.admit(sent{Reader: bytes.NewReader(text)}, shown(cluster))
			must.Succeed(t, err)
			_, err = io.Copy(io.Discard, conn)
			must.Succeed(t, err)
			return time.Since(began)
		}
		ping := []byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
		data := append([]byte{0, 0, littleData, http2frames.Data, 0, 0, 0, 0, 1}, make([]byte, littleData)...)
		tiny := []byte{0, 0, 1, http2frames.Data, 0, 0, 0, 0, 1, 9}
		const seconds = 3
		if took := read("greedy", ping, framesAtOnce/2); took != 0 {
			t.Errorf("half of what a cluster may send at once took %s", took)
		}
		took := read("greedy", ping, framesAtOnce/2+seconds*framesPerSecond)
		if took < seconds*time.Second-time.Second/10 || took > seconds*time.Second+time.Second/10 {
			t.Errorf("pings of %d s beyond what a cluster may send at once took %s", seconds, took)
		}
		if took := read("greedy", data, 10*framesAtOnce); took != 0 {
			t.Errorf("data took %s", took)
		}
		if took := read("other", ping, framesAtOnce); took != 0 {
			t.Errorf("another cluster's pings took %s", took)
		}
		if took := read("other", tiny, framesPerSecond); took < time.Second-time.Second/10 {
			t.Errorf("data of a byte a frame took %s", took)
		}
		endless := append([]byte(http2frames.Preface), bytes.Repeat(ping, 10*framesAtOnce)...)
		conn, err := s.admit(sent{Reader: bytes.NewReader(endless)}, shown("closed"))
		must.Succeed(t, err)
		began := time.Now()
		time.AfterFunc(time.Second, func() { _ = conn.Close() })
		if _, err := io.Copy(io.Discard, conn); err == nil || time.Since(began) != time.Second {
			t.Errorf("a connection that was closed after a second was read until %s: %v", time.Since(began), err)
		}
	})
}
