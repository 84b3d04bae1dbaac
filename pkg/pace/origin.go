// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"net"
	"net/netip"
)

// Origin returns the network that counts as one address: a host with IPv6 has 2^64 addresses. All invalid addresses count as one.
func Origin(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
