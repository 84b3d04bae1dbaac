// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"navix.sh/atoll/e2e/forward"
)

// Dial connects to a port of a Pod, even one on its loopback, through the API server and the kubelet, like `kubectl
// port-forward`. Every connection has its own stream, so a replaced Pod can be dialled again.
func (c *Cluster) Dial(ctx context.Context, namespace, pod string, port int) (net.Conn, error) {
	open, err := forward.Port(c.Config(), namespace, pod, strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	conn, err := open(ctx)
	if err != nil {
		return nil, fmt.Errorf("reaching port %d of pod %s/%s in %s: %w", port, namespace, pod, c.Name, err)
	}
	return conn, nil
}
