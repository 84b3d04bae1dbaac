// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are taken from below the range that systems hand out to outgoing connections, because a program that is killed
// and started again must find its port as free as it left it.
const (
	lowestPort  = 15000
	highestPort = 30000
)

// handed are the ports that were handed out: what has one may not listen there yet.
var handed sync.Map

// FreeAddresses returns loopback addresses that nothing listens on and no outgoing connection takes, each once.
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
