// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"strings"
)

// Exec runs a command in the node and returns its standard output without surrounding space.
func (c *Cluster) Exec(ctx context.Context, args ...string) (string, error) {
	out, err := run(ctx, nil, c.engine, append([]string{"exec", c.Node()}, args...)...)
	return strings.TrimSpace(out), err
}

// Signal sends a signal ("KILL", "STOP", …) to the first process of a container, given its id from a Pod's status.
func (c *Cluster) Signal(ctx context.Context, containerID, signal string) error {
	_, id, found := strings.Cut(containerID, "://")
	if !found {
		return fmt.Errorf("signalling a container in %s: %q is no container id", c.Name, containerID)
	}
	// One exec for both; because each costs a tenth of a second and more.
	const script = `exec kill -s "$2" "$(crictl inspect --output go-template --template '{{.info.pid}}' "$1")"`
	_, err := c.Exec(ctx, "sh", "-c", script, "sh", id, signal)
	return err
}

// PauseNode freezes the whole node: connections stay open, no process in it runs.
func (c *Cluster) PauseNode(ctx context.Context) error { return c.engineDo(ctx, "pause") }

// ResumeNode ends PauseNode.
func (c *Cluster) ResumeNode(ctx context.Context) error { return c.engineDo(ctx, "unpause") }

// StopNode ends the node like a power cut, except for three seconds of warning.
func (c *Cluster) StopNode(ctx context.Context) error { return c.engineDo(ctx, "stop", "--time", "3") }

// StartNode starts a stopped node. It has another address then.
func (c *Cluster) StartNode(ctx context.Context) error { return c.engineDo(ctx, "start") }

func (c *Cluster) engineDo(ctx context.Context, args ...string) error {
	_, err := run(ctx, nil, c.engine, append(args, c.Node())...)
	return err
}
