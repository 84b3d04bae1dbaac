// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// minPingInterval is how often a worker may ping; below keepaliveTime, so that jitter is never an offence.
const minPingInterval = keepaliveTime / 2

// handshakeTimeout ends connections that do not get as far as a stream.
const handshakeTimeout = 10 * time.Second

// What a listener of the link may have of connections whose other end has not shown a certificate yet: each costs up to
// 256 KiB of handshake, for as long as the handshake may take.
const (
	MaxHandshakes           = 1024
	MaxHandshakesPerAddress = 256
)

// maxHeader bounds the header of a call.
const maxHeader = 32 << 10

// readBuffer is what each connection keeps for reading, besides what TLS does: enough for the heads of frames, whose bodies
// are read past it. gRPC's own 32 KiB are a third of what an idle stream costs the hub.
const readBuffer = 4 << 10

// NewServer returns a gRPC server that lets in clusters and nobody else. A handler that panics ends its own stream.
func NewServer(creds *Credentials, metrics *Metrics, log logr.Logger) *grpc.Server {
	return grpc.NewServer(append(serving(transport{Credentials: creds}),
		grpc.ReadBufferSize(readBuffer),
		grpc.InitialWindowSize(tunnelWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.StatsHandler(metrics.handler()),
		grpc.ForceServerCodecV2(newCodec(metrics, log)),
		grpc.ChainStreamInterceptor(append([]grpc.StreamServerInterceptor{contain(log), clustersOnly(log)}, serverFaults()...)...),
	)...)
}

// serving is what hub and replicas have in common as servers.
func serving(creds credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
	}
}

func clustersOnly(log logr.Logger) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if _, err := PeerCluster(stream.Context()); err != nil {
			log.Error(err, "refused a peer")
			return status.Error(codes.PermissionDenied, err.Error())
		}
		return handler(srv, stream)
	}
}

func contain(log logr.Logger) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer func() {
			if r := recover(); r != nil {
				log.Error(fmt.Errorf("panic: %v", r), "a stream's handler failed", "method", info.FullMethod, "stack", string(debug.Stack()))
				err = status.Error(codes.Internal, "the stream's handler failed")
			}
		}()
		return handler(srv, stream)
	}
}
