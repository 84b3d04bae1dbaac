// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Client is the public API at one address.
type Client struct {
	sandboxv1.SandboxesClient
	sandboxv1.ClaimsClient
	sandboxv1.ClustersClient
	sandboxv1.EnvsClient
}

// HubClient speaks to the hub.
func (s *Stack) HubClient() (*Client, error) { return s.client(s.HubAddress()) }

// WorkerClient speaks to a worker's local API.
func (s *Stack) WorkerClient(cluster string) (*Client, error) {
	return s.client(s.WorkerAddress(cluster))
}

func (s *Stack) client(address string) (*Client, error) {
	// Programs of a stack are killed and come back; who waits for that should not wait for gRPC's usual back-off as well.
	reconnect := grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(reconnect))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	s.clients = append(s.clients, conn)
	return &Client{
		SandboxesClient: sandboxv1.NewSandboxesClient(conn), ClaimsClient: sandboxv1.NewClaimsClient(conn),
		ClustersClient: sandboxv1.NewClustersClient(conn), EnvsClient: sandboxv1.NewEnvsClient(conn),
	}, nil
}
