// SPDX-License-Identifier: Apache-2.0

package hubtest

import (
	"context"
	"net"
	"slices"

	"google.golang.org/grpc"

	"navix.sh/atoll/hub/internal/peers"
)

// Peers connects one of several replicas of a hub to the others, whose names are also their addresses.
type Peers struct {
	Name     string
	Listener net.Listener
	Dial     func(ctx context.Context, name string) (net.Conn, error)
	// Alive lists the live replicas, as a hint.
	Alive func() []string
}

// members implements peers.Members.
type members struct{ alive func() []string }

// Peers implements peers.Members.
func (m members) Peers() (all []peers.Peer) {
	for _, name := range m.alive() {
		all = append(all, peers.Peer{Name: name, Address: name})
	}
	return all
}

// Changed implements peers.Members.
func (m members) Changed() <-chan struct{} { return nil }

func (p *Peers) live(name string) bool { return slices.Contains(p.Alive(), name) }

func (h *Hub) newPeers(o Options) *peers.Service {
	settings := peers.Options{
		Name: "hub", Version: "sim", Fleet: h.Fleet, Workers: h.workers, Credentials: o.Credentials, Clock: o.Clock, Log: o.Log.WithName("peers"),
	}
	if p := o.Peers; p != nil {
		settings.Name, settings.Address, settings.Members = p.Name, p.Name, members{p.Alive}
		settings.DialOptions = []grpc.DialOption{grpc.WithContextDialer(p.Dial)}
	}
	return peers.New(settings)
}
