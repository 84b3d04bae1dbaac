// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// port is a TCP port of the loopback address, reserved for the life of a plane.
type port struct {
	number int
	fd     int
}

// reservePort binds a free port without listening on it. A process of the same user can share it by SO_REUSEPORT, and gets all
// its connections; for all other processes the port is taken. (The kernel does not choose a bound port, shared or not.)
func reservePort() (*port, error) {
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	number, err := bindShared(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	return &port{number: number, fd: fd}, nil
}

func bindShared(fd int) (int, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return addr.(*unix.SockaddrInet4).Port, nil
}

func (p *port) release() error { return unix.Close(p.fd) }
