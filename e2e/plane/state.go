// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockName is the lock of the root, held while sets are created and swept, and that of each set, held by its owner: a set whose
// lock is free has lost its owner.
const lockName = ".lock"

// state is the directory of one set.
type state struct {
	dir  string
	lock *os.File
}

// newState sweeps dead owners' sets below root, and creates a directory for a new set.
func newState(root string, log *progress) (*state, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("creating the state directory: %w", err)
	}
	rootLock, err := LockFile(filepath.Join(root, lockName), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer rootLock.Close()

	sweep(root, log)

	dir, err := os.MkdirTemp(root, "")
	if err != nil {
		return nil, fmt.Errorf("creating a set's directory: %w", err)
	}
	lock, err := LockFile(filepath.Join(dir, lockName), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &state{dir: dir, lock: lock}, nil
}

// adopt marks a command as the set's: by its group for the guard, and by its environment for a sweep.
func (s *state) adopt(cmd *exec.Cmd, group int) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	cmd.Env = append(cmd.Environ(), setEnv+"="+s.dir)
}

// remove deletes the directory before it releases the lock, so that no sweep finds it half removed.
func (s *state) remove() error {
	err := os.RemoveAll(s.dir)
	return errors.Join(err, s.lock.Close())
}

// sweep removes the sets below root without an owner. It is best effort: what cannot be removed now belongs to another user, or
// the next sweep retries it.
func sweep(root string, log *progress) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, entry := range entries {
		dir := filepath.Join(root, entry.Name())
		if !entry.IsDir() {
			continue
		}
		lock, err := LockFile(filepath.Join(dir, lockName), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue
		}
		killed := killProcessesOf(dir)
		if err := os.RemoveAll(dir); err == nil {
			log.printf("removed what a dead process left in %s (%d processes)", dir, killed)
		}
		_ = lock.Close()
	}
}

// setEnv names the set's directory in the environment of all its processes, and of their children.
const setEnv = "ATOLL_PLANE_SET"

// killProcessesOf kills the processes of the set in dir. It needs /proc.
func killProcessesOf(dir string) int {
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return 0
	}
	killed := 0
	for _, path := range environments {
		environment, err := os.ReadFile(path)
		if err != nil || !slices.Contains(strings.Split(string(environment), "\x00"), setEnv+"="+dir) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && unix.Kill(pid, unix.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// LockFile opens path and locks it until it is closed, or its process is gone.
func LockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a lock: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}
