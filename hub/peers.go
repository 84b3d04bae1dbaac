// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/attach"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/peers"
	"navix.sh/atoll/hub/internal/sandboxes"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/members"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/version"
)

const (
	defaultPeerListen = ":8444"
	maxReplicaName    = 253
	// leaveTimeout bounds how long a replica that shuts down waits for its workers to attach to others.
	leaveTimeout = 5 * time.Second
)

// replicaOptions configure one of several replicas.
type replicaOptions struct {
	name, peerListen, gossipListen, gossipKeyring string
	join                                          []string
}

func (o *replicaOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.name, "replica-name", "", "name of this replica, unique among those of the hub; default: the host's name")
	flags.StringVar(&o.peerListen, "peer-listen", "",
		"address that other replicas call, always with mutual TLS by the hub's certificate; default: none, or "+defaultPeerListen+" with --join")
	flags.StringSliceVar(&o.join, "join", nil,
		"host names or addresses, with or without a port, of other replicas' gossip; a name may lead to many. Needs --store=etcd")
	flags.StringVar(&o.gossipListen, "gossip-listen", ":"+members.DefaultPort,
		"address of the gossip by which replicas know which are alive, UDP and TCP; other than loopback only with --gossip-keyring-file")
	flags.StringVar(&o.gossipKeyring, "gossip-keyring-file", "",
		"keys of 16, 24 or 32 bytes in base64, one a line, that encrypt gossip: the first encrypts, all decrypt; a change is taken up")
}

// several reports whether the hub has several replicas.
func (o *replicaOptions) several() bool { return o.peerListen != "" || len(o.join) > 0 }

func (o *replicaOptions) validate(shared bool) error {
	if len(o.name) > maxReplicaName {
		return fmt.Errorf("--replica-name: %d bytes are not valid, want at most %d", len(o.name), maxReplicaName)
	}
	if !o.several() {
		return nil
	}
	var errs []error
	if !shared {
		errs = append(errs, errors.New("--join, --peer-listen: several replicas need a store that they share, want --store=etcd:URL,URL"))
	}
	if err := serve.CheckLoopback(o.gossipListen); err != nil && o.gossipKeyring == "" {
		errs = append(errs, fmt.Errorf("--gossip-listen: %w (--gossip-keyring-file)", err))
	}
	if slices.Contains(o.join, "") {
		errs = append(errs, fmt.Errorf("--join: %q is not valid, want names or addresses", strings.Join(o.join, ",")))
	}
	return errors.Join(errs...)
}

// replicaName returns the name of this replica.
func (o *replicaOptions) replicaName() string {
	if o.name != "" {
		return o.name
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "hub"
	}
	return host
}

// reaching sends calls to clusters, and opens tunnels and feeds.
type reaching interface {
	calls.Dispatcher
	sandboxes.Tunnels
	sandboxes.Feeds
}

// buildPeers joins the other replicas, and returns the reaching for all clusters. With one replica, these are the streams of this process.
func (h *hub) buildPeers(o *options, credentials *link.Credentials, workers *attach.Server, clk clock.WithTicker) (reaching, error) {
	h.workers, h.replica = workers, o.replicas.replicaName()
	if !o.replicas.several() {
		return workers, nil
	}
	var err error
	if h.peerListener, err = net.Listen("tcp", cmp.Or(o.replicas.peerListen, defaultPeerListen)); err != nil {
		return nil, fmt.Errorf("--peer-listen: %w", err)
	}
	address := h.peerListener.Addr().String()
	if h.members, err = members.Start(members.Options{
		Name: h.replica, Bind: o.replicas.gossipListen, Join: o.replicas.join, KeyringFile: o.replicas.gossipKeyring, Peer: address,
		Version: version.String(), Load: h.fleet.Attached, Degraded: h.degraded,
		Log: h.log.WithName("members"),
	}); err != nil {
		return nil, fmt.Errorf("--gossip-listen, --gossip-keyring-file: %w", err)
	}
	h.peers = peers.New(peers.Options{
		Name: h.replica, Version: version.String(), Address: address, Fleet: h.fleet, Workers: workers, Credentials: credentials,
		Members: gossip{h.members}, Clock: clk, Log: h.log.WithName("peers"),
	})
	return h.peers, h.peers.Register(h.metrics)
}

// gossip adapts members to package peers.
type gossip struct{ *members.Members }

// Peers implements peers.Members.
func (g gossip) Peers() []peers.Peer {
	var out []peers.Peer
	for _, m := range g.Members.Peers() {
		out = append(out, peers.Peer{Name: m.Name, Address: m.Address, Version: m.Version, Load: m.Load})
	}
	return out
}

// live reports whether a replica is alive, as far as this one knows.
func (h *hub) live(replica string) bool {
	if h.members == nil || replica == h.replica {
		return replica == h.replica
	}
	return slices.ContainsFunc(h.members.Peers(), func(m members.Member) bool { return m.Name == replica })
}

// degraded reports whether the store fails for this replica: its last call failed, or the probes got no response.
func (h *hub) degraded() bool { return h.claimsStore.Failure() != nil || h.probes.failing.now() }

// othersServe reports whether there is another live replica that does not report a failing store.
func (h *hub) othersServe() bool {
	return h.members != nil && slices.ContainsFunc(h.members.Peers(), func(m members.Member) bool {
		return m.Name != h.replica && !m.Degraded
	})
}

// replicas lists the replicas of the hub.
func (h *hub) replicas() []*sandboxv1.Replica {
	if h.peers != nil {
		return h.peers.Replicas()
	}
	return []*sandboxv1.Replica{{
		Name: h.replica, Version: version.String(), Clusters: int32(h.fleet.Attached()), Reachable: true, Since: h.since, Self: true,
	}}
}

// servePeers runs the parts that only several replicas have.
func (h *hub) servePeers(ctx context.Context, group *errgroup.Group) {
	if h.peers == nil {
		return
	}
	group.Go(func() error {
		return h.peers.Serve(ctx, serve.Limit(h.peerListener, link.MaxHandshakes, link.MaxHandshakesPerAddress))
	})
	group.Go(func() error { return h.peers.Run(ctx) })
	group.Go(func() error { return h.members.Run(ctx) })
	group.Go(func() error {
		h.workers.Balance(ctx, h.peers.Loads)
		return nil
	})
}

// redirectWorkers sends the workers to other replicas, if there are any.
func (h *hub) redirectWorkers() {
	if h.peers == nil || len(h.peers.Loads()) == 0 {
		return
	}
	h.workers.RedirectAll(context.Background(), leaveTimeout)
}

// closePeers closes what serve has not closed.
func (h *hub) closePeers() error {
	var errs []error
	if h.members != nil {
		errs = append(errs, h.members.Close())
	}
	if h.peerListener != nil {
		if err := h.peerListener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("closing the peer port: %w", err))
		}
	}
	return errors.Join(errs...)
}

// cutOff returns the names of the live replicas that this one cannot reach. alone is true if it reaches none.
func (h *hub) cutOff() (names string, alone bool) {
	if h.peers == nil {
		return "", false
	}
	missing, connected := h.peers.Unreachable()
	return strings.Join(missing, ", "), len(missing) > 0 && connected == 0
}
