// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// network is what lies between simulated workers and a hub: it counts bytes, and can be cut for some of the clusters.
type network struct {
	in, out atomic.Int64 // as the workers see it

	mu    sync.Mutex
	conns map[*wire]struct{}
	cut   func(cluster int) bool // nil: no cluster is cut off
}

// wire is a connection of a cluster.
type wire struct {
	net.Conn
	network *network
	cluster int
}

var errCut = errors.New("the network is cut")

// dialer returns the way of a cluster to the hub.
func (n *network) dialer(cluster int) func(ctx context.Context, target string) (net.Conn, error) {
	return func(ctx context.Context, target string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", target)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.cut != nil && n.cut(cluster) {
			return nil, errors.Join(errCut, conn.Close())
		}
		w := &wire{Conn: conn, network: n, cluster: cluster}
		if n.conns == nil {
			n.conns = map[*wire]struct{}{}
		}
		n.conns[w] = struct{}{}
		return w, nil
	}
}

// sever ends the connections of some clusters, and refuses others to them until heal.
func (n *network) sever(which func(cluster int) bool) {
	n.mu.Lock()
	n.cut = which
	var ended []*wire
	for w := range n.conns {
		if which(w.cluster) {
			ended = append(ended, w)
		}
	}
	n.mu.Unlock()
	for _, w := range ended {
		_ = w.Close() // its worker notices
	}
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = nil
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.network.in.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.network.out.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.network.mu.Lock()
	delete(w.network.conns, w)
	w.network.mu.Unlock()
	return w.Conn.Close()
}
