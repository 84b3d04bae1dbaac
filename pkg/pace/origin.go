// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"net"
	"net/netip"
)

// Origin returns the Network of a TCP address. All other addresses count as one.
func Origin(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return Network(tcp.AddrPort().Addr())
}

// Network returns the network that counts as one address: an IPv4 address, or the first 64 bits of an IPv6 address, because a host with
// IPv6 has 2^64 addresses. The invalid address has the invalid network.
func Network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap()
	prefix, _ := ip.Prefix(min(ip.BitLen(), 64)) // it drops the zone, and fails only for more bits than the address has
	return prefix
}
