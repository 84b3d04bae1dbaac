// SPDX-License-Identifier: Apache-2.0

package localapi

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/listing"
	"navix.sh/atoll/pkg/watch"
)

// WatchSandboxes streams changes of the cluster's sandboxes.
func (a *API) WatchSandboxes(r *sandboxv1.WatchSandboxesRequest, stream grpc.ServerStreamingServer[sandboxv1.SandboxEvent]) error {
	list, faults := listing.OfWatch(r)
	marks := listing.MarksOf(list)
	after, more := listing.UnsealMark(list)
	query, others := listing.Parse(list)
	if err := append(append(faults, more...), others...).Err(); err != nil {
		return err
	}
	return a.watches.Watch(stream.Context(), watch.Request{
		Query: query, Sees: func(*sandboxv1.Sandbox) bool { return true }, Marks: marks, After: after,
	}, stream.Send)
}

// own is the watch.Source for this cluster.
type own struct{ opts *Options }

// Clusters implements watch.Source.
func (o own) Clusters() []string { return []string{o.opts.ClusterID} }

// Away implements watch.Source.
func (o own) Away(string) bool { return false }

// Open implements watch.Source.
func (o own) Open(ctx context.Context, _ string, scope watch.Scope) (watch.Feed, error) {
	return watch.Pipe(ctx, func(ctx context.Context, send func(*federationv1.SandboxChanges) error) error {
		return o.opts.Sandboxes.Feed(ctx, scope.Namespace, scope.Team, send)
	}), nil
}

// LastKnown implements watch.Source. It returns nil, because a worker knows its own sandboxes.
func (o own) LastKnown(string, watch.Scope) []watch.Known { return nil }

// forwardWatch forwards a watch to the leader.
func (a *API) forwardWatch(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	leader := a.opts.leader()
	if leader == nil || info.FullMethod != sandboxv1.Sandboxes_WatchSandboxes_FullMethodName {
		return handler(srv, stream)
	}
	request := &sandboxv1.WatchSandboxesRequest{}
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	ctx := stream.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	events, err := sandboxv1.NewSandboxesClient(leader).WatchSandboxes(ctx, request)
	for err == nil {
		var event *sandboxv1.SandboxEvent
		if event, err = events.Recv(); err == nil {
			err = stream.SendMsg(event)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
