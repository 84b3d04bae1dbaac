// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// NewPeerServer returns a gRPC server that admits only replicas of the same cluster's worker: those with its certificate.
func NewPeerServer(creds *Credentials, clusterID string, log logr.Logger, unary ...grpc.UnaryServerInterceptor) *grpc.Server {
	only := peersOnly(clusterID, log)
	return grpc.NewServer(append(append(serving(peerTransport{transport{Credentials: creds}, clusterID}),
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

func peersOnly(clusterID string, log logr.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		if who, err := PeerCluster(ctx); err != nil || who != clusterID {
			log.Info("Refused who is no replica of this worker", "cluster", who, "error", err)
			return status.Errorf(codes.PermissionDenied, "this is a worker of cluster %s, for its replicas alone", clusterID)
		}
		return nil
	}
}

// DialPeer prepares a connection to another replica, which must have the same cluster's certificate. Its address is not one that
// a certificate can name.
func DialPeer(target, clusterID string, creds *Credentials) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+target,
		append(calling(peerTransport{transport{Credentials: creds}, clusterID}), grpc.WithNoProxy(),
			grpc.WithInitialWindowSize(tunnelWindow), grpc.WithInitialConnWindowSize(connWindow))...)
	if err != nil {
		return nil, fmt.Errorf("preparing to dial a replica: %w", err)
	}
	return conn, nil
}

// peerTransport is transport between replicas of one worker.
type peerTransport struct {
	transport
	clusterID string
}

func (t peerTransport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(t.peerConfig(t.clusterID)).ClientHandshake(ctx, authority, conn)
}

func (t peerTransport) Clone() credentials.TransportCredentials { return t }

// peerConfig checks a cluster's name instead of a host's. A worker's certificate need not be a server certificate.
func (c *Credentials) peerConfig(clusterID string) *tls.Config {
	m := c.current()
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{m.cert},
		InsecureSkipVerify: true, // VerifyConnection verifies it, by another name
		VerifyConnection: func(state tls.ConnectionState) error {
			return verifyPeer(state, m.cas, clusterID)
		},
	}
}

func verifyPeer(state tls.ConnectionState, cas *x509.CertPool, clusterID string) error {
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
	if who != Cluster(clusterID) {
		return fmt.Errorf("%w: %s is no worker of cluster %s", ErrIdentity, who, clusterID)
	}
	return nil
}
