// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
)

// backupChunk is the size of the part of an archive in one message.
const backupChunk = 256 << 10

// Hub is the state of the hub itself. A hub without durable state has none.
type Hub interface {
	Status() *sandboxv1.HubStatus
	// Replicas lists the replicas of the hub, in order of their names.
	Replicas() []*sandboxv1.Replica
	// AcceptLoss allows claims with a key although the keys of some clusters are unknown.
	AcceptLoss(ctx context.Context) error
	// Backup writes an archive of all durable state.
	Backup(ctx context.Context, w io.Writer) error
}

type hub struct {
	sandboxv1.UnimplementedHubServer
	opts Hub
	busy sync.Mutex // held while a backup runs; because each needs room for a copy of everything
}

func (h *hub) GetHub(ctx context.Context, _ *sandboxv1.GetHubRequest) (*sandboxv1.HubStatus, error) {
	if h.opts == nil {
		return nil, noStore()
	}
	p, status := principal.From(ctx), h.opts.Status()
	status.AwaitedClusters = slices.DeleteFunc(slices.Clone(status.GetAwaitedClusters()), func(id string) bool { return !p.SeesCluster(id) })
	if expires := p.Expires; expires != nil {
		status.ApiKeyExpires = timestamppb.New(*expires)
	}
	return status, nil
}

func (h *hub) ListReplicas(context.Context, *sandboxv1.ListReplicasRequest) (*sandboxv1.ListReplicasResponse, error) {
	if h.opts == nil {
		return nil, noStore()
	}
	return &sandboxv1.ListReplicasResponse{Replicas: h.opts.Replicas()}, nil
}

func (h *hub) AcceptLoss(ctx context.Context, _ *sandboxv1.AcceptLossRequest) (*sandboxv1.HubStatus, error) {
	if h.opts == nil {
		return nil, noStore()
	}
	if err := h.opts.AcceptLoss(ctx); err != nil {
		return nil, problem.New(problem.Unavailable, "the hub's store failed: %w", err).WithRetryAfter(2 * time.Second)
	}
	return h.opts.Status(), nil
}

func (h *hub) BackupHub(_ *sandboxv1.BackupHubRequest, stream grpc.ServerStreamingServer[sandboxv1.BackupChunk]) error {
	if h.opts == nil {
		return noStore()
	}
	if !h.busy.TryLock() {
		return problem.New(problem.RateLimited, "another backup is under way").WithRetryAfter(10 * time.Second)
	}
	defer h.busy.Unlock()
	out := bufio.NewWriterSize(chunks{stream}, backupChunk)
	err := h.opts.Backup(stream.Context(), out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("backing up: %w", err)
	}
	return nil
}

// chunks sends each write as a message.
type chunks struct {
	stream grpc.ServerStreamingServer[sandboxv1.BackupChunk]
}

func (c chunks) Write(p []byte) (int, error) {
	if err := c.stream.Send(&sandboxv1.BackupChunk{Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}
