// SPDX-License-Identifier: Apache-2.0

// Package ports hands out loopback ports to programs that are told where to listen.
//
// In goes how many. Out come addresses that no other process of this package holds and that had no listener: a port belongs to the
// process that got it until that process ends, also while nothing listens there, so that a restarted program finds its port free.
// Ports are below the system's range for outgoing connections.
package ports

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	lowest  = 15000
	highest = 30000
)

// held are the ports of this process. File locks are per process: they hold off other processes alone.
var held struct {
	sync.Mutex
	lock  *os.File // byte n of it is locked while port n is held
	ports map[int]bool
}

// Free returns n addresses, each once.
func Free(n int) (out []string, err error) {
	held.Lock()
	defer held.Unlock()
	if held.lock == nil {
		if held.lock, err = open(); err != nil {
			return nil, fmt.Errorf("opening the locks of ports: %w", err)
		}
		held.ports = map[int]bool{}
	}
	for range 50 * n {
		port := lowest + rand.IntN(highest-lowest)
		if held.ports[port] {
			continue
		}
		address, tryErr := hold(held.lock, port)
		if tryErr != nil {
			err = tryErr
			continue
		}
		held.ports[port] = true
		if out = append(out, address); len(out) == n {
			return out, nil
		}
	}
	return nil, fmt.Errorf("finding %d free ports, found %d: %w", n, len(out), err)
}

func open() (*os.File, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(cache, "atoll", "ports.lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

// hold locks a port for this process and shows that nothing listens there.
func hold(lock *os.File, port int) (address string, err error) {
	at := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(port), Len: 1}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_SETLK, &at); err != nil {
		return "", fmt.Errorf("port %d is another process's: %w", port, err)
	}
	address = fmt.Sprintf("127.0.0.1:%d", port)
	listener, err := net.Listen("tcp", address)
	if err == nil {
		err = listener.Close()
	}
	if err == nil {
		return address, nil
	}
	at.Type = unix.F_UNLCK
	return "", errors.Join(err, unix.FcntlFlock(lock.Fd(), unix.F_SETLK, &at))
}
