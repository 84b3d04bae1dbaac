// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// awaitStopped returns when a child that was sent SIGSTOP has stopped. On a busy machine one of its threads may still run
// before another receives the signal.
func awaitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == nil || errors.Is(err, unix.ECHILD) { // it has ended, which its parent notices
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for process %d to stop: %w", pid, err)
		}
	}
}
