// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"fmt"

	"google.golang.org/grpc"
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
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	s.clients = append(s.clients, conn)
	return &Client{
		SandboxesClient: sandboxv1.NewSandboxesClient(conn), ClaimsClient: sandboxv1.NewClaimsClient(conn),
		ClustersClient: sandboxv1.NewClustersClient(conn), EnvsClient: sandboxv1.NewEnvsClient(conn),
	}, nil
}
