// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"navix.sh/atoll/e2e/must"
)

// dialFrom connects from an address of loopback.
func dialFrom(t *testing.T, from, network, to string) net.Conn {
	t.Helper()
	local := net.Addr(&net.TCPAddr{IP: net.ParseIP(from)})
	if network == "udp" {
		local = &net.UDPAddr{IP: net.ParseIP(from)}
	}
	conn, err := (&net.Dialer{LocalAddr: local}).DialContext(t.Context(), network, to)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// I14: what strangers send to the address of gossip is read at a pace, by few streams, each up to a bound; another address has its own.
func TestI14GossipOfStrangersIsBounded(t *testing.T) {
	tr, err := newTransport("127.0.0.1", 0, log.New(io.Discard, "", 0))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, tr.Shutdown()) })
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(tr.GetAutoBindPort()))

	const flood = 20_000
	stranger, peer := dialFrom(t, "127.0.0.2", "udp", at), dialFrom(t, "127.0.0.3", "udp", at)
	began := time.Now()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range flood {
			_, _ = stranger.Write([]byte("garbage"))
			if i%1000 == 0 {
				_, _ = peer.Write([]byte("gossip"))
			}
		}
	}()
	passed := map[string]int{}
	quiet := time.NewTimer(time.Second)
	for open := true; open; {
		select {
		case p := <-tr.PacketCh():
			passed[addressOf(p.From).String()]++
			quiet.Reset(time.Second)
		case <-quiet.C:
			open = false
		}
	}
	<-sent
	most := packets.Rate * (packets.Burst + time.Since(began)).Seconds()
	if got := passed["127.0.0.2"]; got == 0 || float64(got) > most {
		t.Errorf("%d packets of a stranger passed, want 1 to %.0f", got, most)
	}
	if passed["127.0.0.3"] == 0 {
		t.Error("no packet of another address passed")
	}

	for range 3 * maxStreamsPerAddress {
		dialFrom(t, "127.0.0.2", "tcp", at)
	}
	var streams []net.Conn
	for range maxStreamsPerAddress {
		streams = append(streams, <-tr.StreamCh())
	}
	dialFrom(t, "127.0.0.3", "tcp", at)
	if next := <-tr.StreamCh(); addressOf(next.RemoteAddr()).String() != "127.0.0.3" {
		t.Errorf("stream %d of one address was taken", maxStreamsPerAddress+1)
	} else {
		_ = next.Close()
	}
	for _, s := range streams {
		_ = s.Close()
	}
	large := dialFrom(t, "127.0.0.2", "tcp", at)
	go func() { _, _ = large.Write(make([]byte, 2*maxStreamBytes)) }()
	in := <-tr.StreamCh()
	if n, err := io.Copy(io.Discard, in); !errors.Is(err, errLargeStream) || n != maxStreamBytes {
		t.Errorf("%d bytes of one stream were read: %v", n, err)
	}
	_ = in.Close()
	if tr.all.Len() != 0 || tr.seats.Len() != 0 {
		t.Error("I10: streams that have ended are counted")
	}
}

// I14: replicas see each other while a stranger sends what it can, and what they log of it is little.
func TestI14AStrangersGossipChangesNothing(t *testing.T) {
	a, _ := start(t, "a", func(o *Options) { o.KeyringFile = keyring(t, keyOf(1)) })
	stranger := dialFrom(t, "127.0.0.2", "udp", a.Address())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = stranger.Write(make([]byte, 60_000))
			conn, err := net.Dial("tcp", a.Address())
			if err == nil {
				_, _ = conn.Write([]byte{10, 0, 0xff, 0xff, 0xff, 0xff})
				_ = conn.Close()
			}
		}
	}()
	b, _ := start(t, "b", func(o *Options) { o.KeyringFile, o.Join = keyring(t, keyOf(1)), []string{a.Address()} })
	a.see(t, 2)
	b.see(t, 2)
	cancel()
	<-done
	lines := 0
	w := newLogWriter(funcr.New(func(string, string) { lines++ }, funcr.Options{}))
	for range 1000 {
		_, _ = w.Write([]byte("[ERR] memberlist: Decrypt packet failed"))
	}
	if lines == 0 || lines > 10*linesPerSecond {
		t.Errorf("%d of 1000 lines were written at once", lines)
	}
}
