// SPDX-License-Identifier: Apache-2.0

package simnet

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

var (
	// ErrRefused is a host without a listener, or one that cannot be reached.
	ErrRefused = errors.New("simnet: connection refused")
	// ErrReset is a broken connection.
	ErrReset = errors.New("simnet: connection reset")
)

// Network connects hosts.
type Network struct {
	seed uint64

	mu        sync.Mutex
	listeners map[string]*listener
	paths     map[[2]string]*Path
	dialled   map[[2]string]uint64
}

// New returns a network without hosts.
func New(seed uint64) *Network {
	return &Network{
		seed: seed, listeners: map[string]*listener{}, paths: map[[2]string]*Path{}, dialled: map[[2]string]uint64{},
	}
}

// Path returns the path between two hosts.
func (n *Network) Path(a, b string) *Path {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.path(a, b)
}

func (n *Network) path(a, b string) *Path {
	key := [2]string{min(a, b), max(a, b)}
	p := n.paths[key]
	if p == nil {
		p = &Path{delay: Delay{Base: time.Millisecond, Jitter: time.Millisecond}, conns: map[*pair]struct{}{}, changed: make(chan struct{})}
		n.paths[key] = p
	}
	return p
}

// Listen makes a host accept connections, until the listener is closed or the host is reset.
func (n *Network) Listen(host string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[host] != nil {
		return nil, fmt.Errorf("simnet: %s listens already", host)
	}
	l := &listener{network: n, host: host, pending: make(chan net.Conn, 64), closed: make(chan struct{})}
	n.listeners[host] = l
	return l, nil
}

// Dial connects a host to another. While the path is stalled, Dial waits.
func (n *Network) Dial(ctx context.Context, from, to string) (net.Conn, error) {
	n.mu.Lock()
	p := n.path(from, to)
	key := [2]string{from, to}
	n.dialled[key]++
	number := n.dialled[key]
	n.mu.Unlock()
	if err := p.pass(ctx); err != nil {
		return nil, err
	}
	n.mu.Lock()
	l := n.listeners[to]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dialling %s: %w", to, ErrRefused)
	}
	c := newPair(p, from, to, n.random(from, to, number), n.random(to, from, number))
	if !p.join(c) {
		return nil, fmt.Errorf("dialling %s: %w", to, ErrRefused)
	}
	select {
	case l.pending <- c.server():
		return c.client(), nil
	case <-l.closed:
	case <-ctx.Done():
	}
	c.breakOff(ErrReset)
	return nil, fmt.Errorf("dialling %s: %w", to, ErrRefused)
}

func (n *Network) random(from, to string, number uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s>%s#%d", from, to, number) // a hash never fails
	return rand.New(rand.NewPCG(n.seed, h.Sum64()))
}

// Reset breaks all connections of a host and ends its listener, as if its process was killed.
func (n *Network) Reset(host string) {
	n.mu.Lock()
	l := n.listeners[host]
	var paths []*Path
	for key, p := range n.paths {
		if key[0] == host || key[1] == host {
			paths = append(paths, p)
		}
	}
	n.mu.Unlock()
	if l != nil {
		_ = l.Close() // it returns no error
	}
	for _, p := range paths {
		p.Break()
	}
}

type listener struct {
	network *Network
	host    string
	pending chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.pending:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections that were not accepted break.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		if l.network.listeners[l.host] == l {
			delete(l.network.listeners, l.host)
		}
		l.network.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.pending:
				_ = c.Close() // it returns no error
			default:
				return
			}
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return address(l.host) }

type address string

func (address) Network() string  { return "sim" }
func (a address) String() string { return string(a) }
