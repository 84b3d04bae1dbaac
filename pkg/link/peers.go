// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// NewPeerServer returns a gRPC server that admits only replicas of the same cluster's worker: those with its certificate.
func NewPeerServer(creds *Credentials, clusterID string, log logr.Logger, unary ...grpc.UnaryServerInterceptor) *grpc.Server {
	return newPeerServer(creds, Cluster(clusterID), log, unary...)
}

// NewHubPeerServer returns a gRPC server that admits only replicas of a hub: those with a hub's certificate of the same CA.
func NewHubPeerServer(creds *Credentials, log logr.Logger) *grpc.Server {
	return newPeerServer(creds, Hub(), log)
}

func newPeerServer(creds *Credentials, who Identity, log logr.Logger, unary ...grpc.UnaryServerInterceptor) *grpc.Server {
	only := peersOnly(who, log)
	return grpc.NewServer(append(append(serving(peerTransport{transport{Credentials: creds}, who}),
		grpc.InitialWindowSize(tunnelWindow), grpc.InitialConnWindowSize(connWindow)),
		grpc.ChainStreamInterceptor(contain(log), uncompressed, func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
			handler grpc.StreamHandler) error {
			if err := only(stream.Context()); err != nil {
				return err
			}
			return handler(srv, stream)
		}),
		grpc.ChainUnaryInterceptor(append([]grpc.UnaryServerInterceptor{
			func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				if err := only(ctx); err != nil {
					return nil, err
				}
				return handler(ctx, req)
			},
		}, unary...)...),
	)...)
}

func peersOnly(us Identity, log logr.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		if who, err := peerIdentity(ctx); err != nil || who != us {
			log.Info("Refused who is no replica of this process", "identity", who.String(), "error", err)
			return status.Errorf(codes.PermissionDenied, "this is %s, for its replicas alone", us.role())
		}
		return nil
	}
}

// role names an identity in errors.
func (i Identity) role() string {
	if i.ClusterID == "" {
		return "a hub"
	}
	return "a worker of cluster " + i.ClusterID
}

// DialPeer prepares a connection to another replica, which must have the same cluster's certificate. It checks no host name, because a
// certificate cannot name the address of a replica.
func DialPeer(target, clusterID string, creds *Credentials) (*grpc.ClientConn, error) {
	return dialPeer(target, Cluster(clusterID), creds)
}

// peerBackoff is the backoff for an unreachable hub replica. It is short, because its clusters are the last choice while it is unreachable.
var peerBackoff = backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.5, MaxDelay: 5 * time.Second}

// DialHubPeer prepares a connection to another replica of a hub, which must have a hub's certificate of the same CA.
func DialHubPeer(target string, creds *Credentials, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return dialPeer(target, Hub(), creds,
		append(more, grpc.WithConnectParams(grpc.ConnectParams{Backoff: peerBackoff, MinConnectTimeout: connectTimeout}))...)
}

func dialPeer(target string, who Identity, creds *Credentials, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+target,
		append(append(calling(peerTransport{transport{Credentials: creds}, who}), grpc.WithNoProxy(),
			grpc.WithInitialWindowSize(tunnelWindow), grpc.WithInitialConnWindowSize(connWindow)), more...)...)
	if err != nil {
		return nil, fmt.Errorf("preparing to dial a replica: %w", err)
	}
	return conn, nil
}

// peerTransport is transport between replicas of the same worker or hub.
type peerTransport struct {
	transport
	who Identity
}

func (t peerTransport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if t.current().missing() {
		return nil, nil, ErrNoCertificate
	}
	return clientHandshake(ctx, t.peerConfig(t.who), authority, conn)
}

func (t peerTransport) Clone() credentials.TransportCredentials { return t }

// peerConfig verifies an identity instead of a host name. A worker's certificate need not be a server certificate.
func (c *Credentials) peerConfig(who Identity) *tls.Config {
	m := c.current()
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{m.cert},
		InsecureSkipVerify: true, // VerifyConnection verifies the certificate, by its identity
		VerifyConnection: func(state tls.ConnectionState) error {
			return verifyPeer(state, m.cas, who)
		},
	}
}

func verifyPeer(state tls.ConnectionState, cas *x509.CertPool, us Identity) error {
	if len(state.PeerCertificates) == 0 {
		return fmt.Errorf("%w: the replica has no certificate", ErrIdentity)
	}
	intermediates := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: cas, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	who, err := IdentityOf(state.PeerCertificates[0])
	if err != nil {
		return err
	}
	if who != us {
		return fmt.Errorf("%w: %s is no %s", ErrIdentity, who, strings.TrimPrefix(us.role(), "a "))
	}
	return nil
}
