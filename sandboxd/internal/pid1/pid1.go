// SPDX-License-Identifier: Apache-2.0

// Package pid1 carries out the duties of a container's first process: it starts others, forwards signals to them, and reaps orphaned
// processes.
//
// In: the daemon's command, and the image's. Out: the exit code of the image's command, else of the daemon.
//
// It reaps in a process without other children of its own, because a wait for any child would take the exit status from os/exec.
package pid1

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Run starts the daemon and the image's command, if there is one, and returns the exit code when the container's work is over.
func Run(daemon, command []string) (int, error) {
	// This has no effect as PID 1, which adopts orphans anyway.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("becoming the parent of orphans: %w", err)
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	defer signal.Stop(signals)

	serving, err := start(daemon)
	if err != nil {
		return 1, fmt.Errorf("starting the daemon: %w", err)
	}
	main, children := serving, []int{serving}
	if len(command) > 0 {
		if main, err = start(command); err != nil {
			_ = unix.Kill(serving, unix.SIGTERM)
			reap(serving)
			return 127, fmt.Errorf("starting the image's command %q: %w", command[0], err)
		}
		children = append(children, main)
	}
	for s := range signals {
		number, _ := s.(syscall.Signal)
		switch number {
		case unix.SIGCHLD:
			if status, over := reaped(main); over {
				for _, pid := range children {
					_ = unix.Kill(pid, unix.SIGTERM) // fails if the process is gone
				}
				if main != serving {
					reap(serving)
				}
				return code(status), nil
			}
		case unix.SIGURG, unix.SIGPIPE: // the Go runtime's own, and a closed pipe of this process
		default:
			for _, pid := range children {
				_ = unix.Kill(pid, number)
			}
		}
	}
	return 1, errors.New("signals ended")
}

// start starts a command as the leader of a process group, with this process's own files.
func start(argv []string) (int, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, err
	}
	process, err := os.StartProcess(path, argv, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, err
	}
	pid := process.Pid
	_ = process.Release() // this package reaps it
	return pid, nil
}

// reaped reaps processes that have ended, and reports whether the main process is among them.
func reaped(main int) (status unix.WaitStatus, over bool) {
	for {
		var ended unix.WaitStatus
		pid, err := unix.Wait4(-1, &ended, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || pid == 0:
			return status, over
		case pid == main:
			status, over = ended, true
		}
	}
}

// reap waits for one process.
func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// code returns the exit code in the form that shells use.
func code(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
