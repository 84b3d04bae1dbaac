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
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// minPingInterval is the shortest interval at which a worker may ping. It is below keepaliveTime, so that jitter never violates it.
const minPingInterval = keepaliveTime / 2

// handshakeTimeout ends connections that open no stream in time.
const handshakeTimeout = 10 * time.Second

// Limits on the connections of a link listener whose peer has not presented a certificate yet. Each costs up to 256 KiB of handshake, for
// as long as the handshake may take.
const (
	MaxHandshakes           = 1024
	MaxHandshakesPerAddress = 256
)

// maxHeader bounds the header of a call.
const maxHeader = 32 << 10

// readBuffer is the read buffer of each connection, in addition to that of TLS. It is enough for the headers of frames, whose bodies bypass
// it. gRPC's default of 32 KiB would be a third of the hub's cost of an idle stream.
const readBuffer = 4 << 10

// NewServer returns a gRPC server that admits only clusters. A panic in a handler ends only its own stream.
func NewServer(creds *Credentials, metrics *Metrics, log logr.Logger) *grpc.Server {
	return newServer(transport{Credentials: creds}, metrics, log)
}

// NewJoiningServer returns a NewServer at which callers without a certificate may also ask to join; see RegisterJoining.
func NewJoiningServer(creds *Credentials, metrics *Metrics, log logr.Logger) *grpc.Server {
	return newServer(transport{Credentials: creds, guests: true}, metrics, log)
}

func newServer(creds transport, metrics *Metrics, log logr.Logger) *grpc.Server {
	return grpc.NewServer(append(serving(creds),
		grpc.ReadBufferSize(readBuffer),
		grpc.InTapHandle(newPace().tap),
		grpc.InitialWindowSize(tunnelWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.StatsHandler(metrics.handler()),
		grpc.ForceServerCodecV2(newCodec(metrics, log)),
		grpc.ChainStreamInterceptor(append([]grpc.StreamServerInterceptor{contain(log), uncompressed, clustersOnly(log)}, serverFaults()...)...),
	)...)
}

// serving returns the server options that the hub and peer servers share.
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
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if _, err := PeerCluster(stream.Context()); err != nil && info.FullMethod != JoinMethod {
			log.Error(err, "refused a peer")
			return status.Error(codes.PermissionDenied, err.Error())
		}
		return handler(srv, stream)
	}
}

// uncompressed rejects streams with compressed messages before any message is read (I14). A few KiB could become a whole message in memory,
// and no build compresses.
func uncompressed(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	transport, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(interface{ RecvCompress() string })
	if !ok {
		return status.Error(codes.Internal, "the transport does not tell how messages are encoded")
	}
	if how := transport.RecvCompress(); how != "" && how != encoding.Identity {
		return status.Error(codes.Unimplemented, "grpc-encoding: messages are not compressed here, want identity")
	}
	return handler(srv, stream)
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
