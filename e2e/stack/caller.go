// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/history"
)

// EnvCaller claims from one Env, and records what it holds.
type EnvCaller struct {
	Namespace, Env string
	// Holdings, if any, check what is returned.
	Holdings *history.Holdings
}

// Claim creates a sandbox at a hub or a worker. Without a key it has no first-activity timeout; because suites hold sandboxes
// without using them.
func (c EnvCaller) Claim(ctx context.Context, at *Client, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	r.Namespace, r.Env = c.Namespace, c.Env
	if r.GetClaimKey() == "" {
		r.FirstActivityTimeout = durationpb.New(0)
	}
	sandbox, err := at.CreateSandbox(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("claiming from %s: %w", c.Env, err)
	}
	if c.Holdings == nil {
		return sandbox, nil
	}
	return sandbox, c.Holdings.Answered(sandbox)
}

// Release gives a sandbox back. The holdings drop its Pod first; because it may be returned again before this call responds.
func (c EnvCaller) Release(ctx context.Context, at *Client, sandbox *sandboxv1.Sandbox) error {
	if c.Holdings != nil {
		c.Holdings.Releasing(sandbox)
	}
	return at.Release(ctx, sandbox.GetId())
}

// Release ends a sandbox.
func (c *Client) Release(ctx context.Context, id string) error {
	if _, err := c.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: id}); err != nil {
		return fmt.Errorf("releasing %s: %w", id, err)
	}
	return nil
}

// ReadyIdle returns the number of an Env's claimable Pods, by cluster.
func (c *Client) ReadyIdle(ctx context.Context, namespace, env string) (map[string]int, error) {
	got, err := c.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: namespace, Name: env})
	if err != nil {
		return nil, fmt.Errorf("reading Env %s: %w", env, err)
	}
	ready := map[string]int{}
	for _, cluster := range got.GetClusters() {
		for _, m := range cluster.GetMembers() {
			ready[cluster.GetClusterId()] += int(m.GetReadyIdle())
		}
	}
	return ready, nil
}
