// SPDX-License-Identifier: Apache-2.0

package members

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/pace"
	"navix.sh/atoll/pkg/tally"
)

// Bounds on what strangers send to the gossip address (I14). memberlist has none: it reads up to 20 MiB of each stream before it can
// decrypt it, accepts any number of streams, and logs each packet that it cannot decrypt.
const (
	// maxStreams and maxStreamsPerAddress bound the concurrent streams. A replica opens few, for less than a second each.
	maxStreams           = 64
	maxStreamsPerAddress = 16
	// maxStreamBytes bounds what is read from a stream, which contains the state of all replicas, of up to 1 KiB each.
	maxStreamBytes = 256 << 10
)

// packets limits the packets from an address. A replica sends about fifty per second.
var packets = pace.Limits{Rate: 200, All: 2000, Burst: 2 * time.Second, Least: 64}

// transport is memberlist's transport with bounds.
type transport struct {
	*memberlist.NetTransport
	clock    clock.Clock
	packets  chan *memberlist.Packet
	streams  chan net.Conn
	paces    *pace.Pace[netip.Addr]
	seats    *tally.Tally[netip.Addr]
	all      *tally.Tally[struct{}]
	done     chan struct{}
	shutdown sync.Once
	passing  sync.WaitGroup
}

// bindTries is how often a port is chosen, which must be free for both UDP and TCP.
const bindTries = 10

func newTransport(host string, port int, logger *log.Logger) (*transport, error) {
	var inner *memberlist.NetTransport
	var err error
	for range bindTries {
		inner, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: port, Logger: logger})
		if err == nil || port != 0 || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	t := &transport{
		NetTransport: inner, clock: clock.RealClock{}, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		paces: pace.New[netip.Addr](packets, clock.RealClock{}), seats: tally.New[netip.Addr](maxStreamsPerAddress),
		all: tally.New[struct{}](maxStreams), done: make(chan struct{}),
	}
	t.passing.Go(t.passPackets)
	t.passing.Go(t.passStreams)
	return t, nil
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// passPackets drops packets of an address that exceeds its rate. If all addresses together exceed theirs, it stops reading and the kernel
// drops packets, because each read costs a buffer of 64 KiB.
func (t *transport) passPackets() {
	all := pace.New[struct{}](pace.Limits{Rate: packets.All, Burst: packets.Burst}, t.clock)
	for {
		select {
		case <-t.done:
			return
		case p := <-t.NetTransport.PacketCh():
			if wait := all.Take(struct{}{}, 1); wait > 0 {
				timer := t.clock.NewTimer(wait)
				select {
				case <-timer.C():
				case <-t.done:
				}
				timer.Stop()
			}
			from := addressOf(p.From)
			if t.paces.Take(from, 1) > 0 {
				t.paces.Take(from, -1)
				continue
			}
			select {
			case t.packets <- p:
			case <-t.done:
			}
		}
	}
}

// passStreams closes streams beyond the limits.
func (t *transport) passStreams() {
	for {
		select {
		case <-t.done:
			return
		case conn := <-t.NetTransport.StreamCh():
			from := addressOf(conn.RemoteAddr())
			if !t.all.Enter(struct{}{}) {
				_ = conn.Close()
				continue
			}
			if !t.seats.Enter(from) {
				t.all.Leave(struct{}{})
				_ = conn.Close()
				continue
			}
			bounded := &stream{Conn: conn, left: maxStreamBytes, leave: sync.OnceFunc(func() {
				t.seats.Leave(from)
				t.all.Leave(struct{}{})
			})}
			select {
			case t.streams <- bounded:
			case <-t.done:
				_ = bounded.Close()
			}
		}
	}
}

// Shutdown implements memberlist.Transport. It drops what the inner transport still delivers while it shuts down.
func (t *transport) Shutdown() error {
	ended := make(chan error, 1)
	go func() { ended <- t.NetTransport.Shutdown() }()
	for {
		select {
		case err := <-ended:
			t.shutdown.Do(func() { close(t.done) })
			t.passing.Wait()
			return err
		case <-t.packets:
		case conn := <-t.streams:
			_ = conn.Close()
		}
	}
}

func addressOf(addr net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

var errLargeStream = errors.New("more than gossip may send")

// stream is a counted connection from which only a bounded number of bytes is read.
type stream struct {
	net.Conn
	left  int
	leave func()
}

func (s *stream) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, fmt.Errorf("%w: %d bytes", errLargeStream, maxStreamBytes)
	}
	n, err := s.Conn.Read(b[:min(len(b), s.left)])
	s.left -= n
	return n, err
}

func (s *stream) Close() error {
	defer s.leave()
	return s.Conn.Close()
}

// linesPerSecond bounds memberlist's log.
const linesPerSecond = 10
