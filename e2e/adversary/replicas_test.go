// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
)

// replicaRows attack what replicas of the hub have for each other: the port of peers, and gossip.
func replicaRows() []row {
	peer := func(a *attacker) string { return a.Peers[0] }
	return []row{
		{name: "peer-churn", role: anyone, replicas: true, told: []string{"connected"}, attack: churn(peer), check: complete},
		{name: "peer-strangers", role: anyone, replicas: true, told: []string{".*certificate.*"}, never: []string{"admitted"}, check: complete,
			attack: handshakesAt(peer, func(*attacker) (*tls.Config, error) { return &tls.Config{}, nil })},
		{name: "peer-own-certificate", role: anyone, replicas: true, told: []string{".*certificate.*"}, never: []string{"admitted"},
			check: complete, attack: handshakesAt(peer, func(*attacker) (*tls.Config, error) {
				cert, err := selfSigned("spiffe://atoll.navix.sh/hub")
				return &tls.Config{GetClientCertificate: always(cert)}, err
			})},
		{name: "peer-clusters", role: cluster, replicas: true, told: []string{"Unavailable|PermissionDenied"}, never: []string{"OK"},
			check: complete, attack: peerCalls},
		{name: "gossip-garbage", role: anyone, replicas: true, told: []string{"sent"}, check: complete, attack: gossipGarbage},
		{name: "gossip-streams", role: anyone, replicas: true, told: []string{"closed"}, check: complete, attack: gossipStreams},
	}
}

// complete waits until every replica is reached; because a replica that was busy may be so again in a moment.
func complete(ctx context.Context, w *world, _ *ground) error {
	return wait.Until(ctx, patience, "the replicas to reach each other", func(ctx context.Context) error {
		_, err := w.peers(ctx)
		return err
	})
}

// peers returns the addresses of the replicas' ports for each other, or an error if the replica that is asked does not reach all.
func (w *world) peers(ctx context.Context) (addresses []string, err error) {
	list, err := w.admin.ListReplicas(ctx, &sandboxv1.ListReplicasRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing the replicas: %w", err)
	}
	for _, r := range list.GetReplicas() {
		if !r.GetReachable() {
			return nil, fmt.Errorf("replica %s is not reachable", r.GetName())
		}
		addresses = append(addresses, r.GetAddress())
	}
	if len(addresses) != *hubsFlag {
		return nil, fmt.Errorf("there are %d replicas, want %d", len(addresses), *hubsFlag)
	}
	return addresses, nil
}

// peerCalls calls a replica as another one would, with the certificate of a cluster.
func peerCalls(ctx context.Context, a *attacker) error {
	config, err := a.linkConfig()
	if err != nil {
		return err
	}
	swarm(ctx, 8, func(i int) {
		conn, err := grpc.NewClient("passthrough:///"+a.Peers[i%len(a.Peers)], grpc.WithTransportCredentials(credentials.NewTLS(config)),
			grpc.WithContextDialer(a.dial))
		if err != nil {
			a.tellError(err)
			return
		}
		defer conn.Close()
		a.attempts.Add(1)
		stream, err := federationv1.NewPeersClient(conn).Relay(ctx)
		if err == nil {
			_ = stream.Send(&federationv1.RelayRequest{Body: &federationv1.RelayRequest_Hello{Hello: &federationv1.PeerHello{Name: "hub-1"}}})
			_, err = stream.Recv()
		}
		if ctx.Err() == nil {
			a.tellError(err)
		}
	})
	return nil
}

// gossipGarbage sends packets that no key has encrypted, small and as large as they may be.
func gossipGarbage(ctx context.Context, a *attacker) error {
	large := make([]byte, 60_000)
	_, _ = rand.Read(large) // never fails
	swarm(ctx, 4, func(i int) {
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(a.Source)}}
		conn, err := dialer.DialContext(ctx, "udp", a.Gossip[i%len(a.Gossip)])
		if err != nil {
			a.tellError(err)
			return
		}
		defer conn.Close()
		for n := 0; n < 1000 && ctx.Err() == nil; n++ {
			a.attempts.Add(1)
			size, _ := conn.Write(large[n%100:][:[]int{1, 40, 1400, len(large) - 100}[n%4]])
			a.sent.Add(int64(size))
		}
		a.tell("sent")
	})
	return nil
}

// gossipStreams announces states of 20 MiB, and sends what is read of them.
func gossipStreams(ctx context.Context, a *attacker) error {
	begin := binary.BigEndian.AppendUint32([]byte{10}, 20<<20-1) // encrypted, and as long as memberlist takes
	swarm(ctx, 64, func(i int) {
		a.attempts.Add(1)
		conn, ok := a.connect(ctx, a.Gossip[i%len(a.Gossip)])
		if !ok {
			return
		}
		defer conn.Close()
		_, err := conn.Write(begin)
		for chunk := make([]byte, 64<<10); err == nil; {
			_, err = conn.Write(chunk)
		}
		a.tell(answered(bufio.NewReader(conn)))
	})
	return nil
}
