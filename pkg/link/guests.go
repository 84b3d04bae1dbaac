// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/pace"
)

// JoinMethod is the only method that a guest may call. A guest is a caller without a certificate, on a server at which clusters can join.
const JoinMethod = federationv1.Joining_Join_FullMethodName

// Limits of guests (I14). A guest's connection counts against MaxHandshakes until it ends.
const (
	// MaxJoin is the largest request to join.
	MaxJoin = 32 << 10
	// guestBytes bounds everything that a guest sends: the request and HTTP/2's own frames.
	guestBytes = 64 << 10
	// GuestAge is how long a guest's connection may last.
	GuestAge = 30 * time.Second

	// Bursts and rates of requests to join: per address, and in total.
	joinsAtOncePerAddress, joinsPerSecondPerAddress = 16, 2
	joinsAtOnce, joinsPerSecond                     = 64, 20
	maxJoinAddresses                                = 4096
)

// guest is the AuthInfo of a connection without a certificate. It is not a credentials.TLSInfo, so that a guest has no identity.
type guest struct {
	credentials.CommonAuthInfo
	conn *guestConn
}

// AuthType implements credentials.AuthInfo.
func (guest) AuthType() string { return "none" }

// guestConn is the connection of a guest. It is closed after GuestAge, or after guestBytes.
type guestConn struct {
	net.Conn
	left  atomic.Int64
	asked atomic.Bool
	timer *time.Timer
}

func newGuest(conn net.Conn) (net.Conn, credentials.AuthInfo) {
	g := &guestConn{Conn: conn}
	g.left.Store(guestBytes)
	g.timer = time.AfterFunc(GuestAge, func() { _ = conn.Close() })
	return g, guest{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, g}
}

var errGuestTooMuch = errors.New("link: a caller without a certificate has sent too much")

func (g *guestConn) Read(p []byte) (int, error) {
	left := g.left.Load()
	if left <= 0 {
		return 0, errGuestTooMuch
	}
	n, err := g.Conn.Read(p[:min(int64(len(p)), left)])
	g.left.Add(-int64(n))
	return n, err
}

func (g *guestConn) Close() error {
	g.timer.Stop()
	return g.Conn.Close()
}

// guestOf returns the guest that makes the call, or nil if the caller has a certificate.
func guestOf(ctx context.Context) *guestConn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	g, ok := p.AuthInfo.(guest)
	if !ok {
		return nil
	}
	return g.conn
}

// guestLimiter limits the rate of guests.
type guestLimiter struct {
	all  *rate.Limiter
	from *limiters[netip.Prefix]
}

func newGuestLimiter() *guestLimiter {
	return &guestLimiter{
		all:  rate.NewLimiter(joinsPerSecond, joinsAtOnce),
		from: newLimiters[netip.Prefix](joinsPerSecondPerAddress, joinsAtOncePerAddress, maxJoinAddresses),
	}
}

// admit accepts or rejects a guest's stream before any of it is read. A connection may have one stream, of Join; any other stream closes
// it.
func (j *guestLimiter) admit(g *guestConn, method string) error {
	switch {
	case method != JoinMethod:
		_ = g.Close()
		return status.Error(codes.Unauthenticated, "without a certificate there is nothing but joining")
	case !g.asked.CompareAndSwap(false, true):
		_ = g.Close()
		return status.Error(codes.ResourceExhausted, "a connection without a certificate has one call")
	case !j.from.of(pace.Origin(g.RemoteAddr())).Allow() || !j.all.Allow():
		return status.Error(codes.ResourceExhausted, "too many ask to join, try again later")
	}
	return nil
}

// Join handles a request to join. remote is the caller's address.
type Join func(ctx context.Context, remote string, r *federationv1.JoinRequest) (*federationv1.JoinResponse, error)

// RegisterJoining serves Joining on a server of NewJoiningServer. A unary call is a stream of one message each way, and is served as a
// stream here, so that the stream interceptors can refuse it before it is read.
func RegisterJoining(s *grpc.Server, join Join) {
	service := federationv1.Joining_ServiceDesc
	service.HandlerType = (*any)(nil)
	service.Methods = nil
	service.Streams = []grpc.StreamDesc{{StreamName: "Join", Handler: func(_ any, stream grpc.ServerStream) error {
		request := &federationv1.JoinRequest{}
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		if size := proto.Size(request); size > MaxJoin {
			return status.Errorf(codes.InvalidArgument, "the request has %d bytes, want at most %d", size, MaxJoin)
		}
		var remote string
		if p, ok := peer.FromContext(stream.Context()); ok {
			remote = p.Addr.String()
		}
		response, err := join(stream.Context(), remote, request)
		if err != nil {
			return err
		}
		return stream.SendMsg(response)
	}}}
	s.RegisterService(&service, struct{}{})
}
