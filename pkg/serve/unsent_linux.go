// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsent is how much of a response the kernel holds beyond what a peer may be sent (I14). Without it a peer that reads nothing makes the
// kernel hold 4 MiB, which are fetched from a sandbox at the cost of every process on the way.
const maxUnsent = 128 << 10

// boundUnsent bounds what the kernel holds. Not every connection is of TCP.
func boundUnsent(conn net.Conn) {
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
		})
	}
}
