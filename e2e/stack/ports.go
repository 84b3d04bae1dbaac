// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the range that systems hand out to outgoing connections, because a program that is killed
// and started again must find its port as free as it left it.
const (
	lowestPort  = 15000
	highestPort = 30000
)

// freeAddress is a loopback address that nobody listens on.
func freeAddress() (string, error) {
	var errs []error
	for range 50 {
		address := fmt.Sprintf("127.0.0.1:%d", lowestPort+rand.IntN(highestPort-lowestPort))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := listener.Close(); err != nil {
			return "", fmt.Errorf("trying a port: %w", err)
		}
		return address, nil
	}
	return "", fmt.Errorf("finding a free port: %w", errors.Join(errs...))
}

func freeAddresses(n int) ([]string, error) {
	seen := map[string]bool{}
	var out []string
	for len(out) < n {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		if !seen[address] {
			seen[address] = true
			out = append(out, address)
		}
	}
	return out, nil
}
