// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are below the system's range for outgoing connections; because a restarted program must find its port free.
const (
	lowestPort  = 15000
	highestPort = 30000
)

// handed are the ports handed out so far; their programs may not listen yet.
var handed sync.Map

// FreeAddresses returns loopback addresses without a listener and outside the outgoing range, each once.
func FreeAddresses(n int) (out []string, err error) {
	for range 50 * n {
		address := fmt.Sprintf("127.0.0.1:%d", lowestPort+rand.IntN(highestPort-lowestPort))
		if _, known := handed.LoadOrStore(address, true); known {
			continue
		}
		listener, listenErr := net.Listen("tcp", address)
		if listenErr != nil {
			err = listenErr
			continue
		}
		if err := listener.Close(); err != nil {
			return nil, fmt.Errorf("trying a port: %w", err)
		}
		if out = append(out, address); len(out) == n {
			return out, nil
		}
	}
	return nil, fmt.Errorf("finding %d free ports, found %d: %w", n, len(out), err)
}
