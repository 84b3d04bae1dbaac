// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// balancer is one address of several replicas, as a Service is: each connection goes to the next one that accepts it.
type balancer struct {
	listener net.Listener
	to       []string
	dials    atomic.Uint64
	running  sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]struct{}
	ended bool
}

func newBalancer(to []string) (*balancer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{listener: listener, to: to, open: map[net.Conn]struct{}{}}
	b.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			b.running.Go(func() { b.serve(conn) })
		}
	})
	return b, nil
}

func (b *balancer) address() string { return b.listener.Addr().String() }

func (b *balancer) serve(from net.Conn) {
	defer func() { _ = from.Close() }()
	to := b.dial()
	if to == nil {
		return
	}
	defer func() { _ = to.Close() }()
	if !b.keep(from, to) {
		return
	}
	defer b.drop(from, to)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to)
		_ = from.Close() // the replica has ended: the caller dials again
	})
	_, _ = io.Copy(to, from)
	_ = to.Close()
	back.Wait()
}

func (b *balancer) dial() net.Conn {
	first := b.dials.Add(1)
	for i := range b.to {
		address := b.to[(first+uint64(i))%uint64(len(b.to))]
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return conn
		}
	}
	return nil
}

func (b *balancer) keep(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		b.open[conn] = struct{}{}
	}
	return !b.ended
}

func (b *balancer) drop(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		delete(b.open, conn)
	}
}

// Close ends all connections.
func (b *balancer) Close() error {
	errs := []error{b.listener.Close()}
	b.mu.Lock()
	b.ended = true
	for conn := range b.open {
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
	return errors.Join(errs...)
}
