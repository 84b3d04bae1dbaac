// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"net"
	"net/http"

	"google.golang.org/grpc/peer"
)

type originKey struct{}

// Origin is the source of a call.
type Origin struct {
	Address   string // of the connection's peer; headers are not used, because any caller can set them
	UserAgent string
	RequestID string // chosen by the caller
}

// withOrigin stores the source of an HTTP request in its context, because the gRPC call it is translated to has only a context.
func withOrigin(r *http.Request) *http.Request {
	o := Origin{Address: host(r.RemoteAddr), UserAgent: r.UserAgent(), RequestID: r.Header.Get(requestID)}
	return r.WithContext(context.WithValue(r.Context(), originKey{}, o))
}

// OriginOf returns where a call of either protocol came from.
func OriginOf(ctx context.Context) Origin {
	if o, ok := ctx.Value(originKey{}).(Origin); ok {
		return o
	}
	o := Origin{UserAgent: header(ctx, "user-agent"), RequestID: header(ctx, requestID)}
	if p, ok := peer.FromContext(ctx); ok {
		o.Address = host(p.Addr.String())
	}
	return o
}

// requestID is the name of a header, and of the metadata of gRPC.
const requestID = "x-request-id"

func host(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}
