// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsent is how much of a response the kernel buffers beyond what it may send to the peer (I14). Without this limit the kernel buffers 4
// MiB for a peer that reads nothing, and every process on the way to the sandbox pays for fetching them.
const maxUnsent = 128 << 10

// boundUnsent sets this limit. It skips connections that are not TCP.
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
