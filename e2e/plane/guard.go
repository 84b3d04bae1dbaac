// SPDX-License-Identifier: Apache-2.0

package plane

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

//go:embed guard.sh
var guardScript string

// guard ends a set with its owner; see the package documentation.
type guard struct {
	// lifeline is the write end of the pipe. It must never be inherited: a child that holds it keeps a dead owner's planes
	// alive. os.Pipe sets close-on-exec, and nothing may clear it.
	lifeline *os.File
	// anchor leads the planes' process group and does nothing else, so that the group exists before the first plane, and its
	// number is not reused while the set lives.
	anchor  *exec.Cmd
	watcher *exec.Cmd
}

func newGuard(dir string) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("creating the guard's pipe: %w", err)
	}
	defer r.Close()
	g := &guard{lifeline: w}
	if g.anchor, err = startShell(r, "read -r _", "atoll-plane-anchor"); err != nil {
		return nil, errors.Join(err, g.release())
	}
	if g.watcher, err = startShell(r, guardScript, "atoll-plane-guard", dir, strconv.Itoa(g.group())); err != nil {
		return nil, errors.Join(err, g.release())
	}
	return g, nil
}

// group is the process group that all processes of the set join.
func (g *guard) group() int { return g.anchor.Process.Pid }

// release ends the guard of a set after Down, and the adopted commands that still run.
func (g *guard) release() error {
	if g.anchor != nil {
		// The group is gone already if another process killed it.
		_ = syscall.Kill(-g.group(), syscall.SIGKILL)
	}
	// The watcher first: it must not see the pipe closed.
	for _, cmd := range []*exec.Cmd{g.watcher, g.anchor} {
		if cmd == nil {
			continue
		}
		_ = cmd.Process.Kill()
		// Always an error, as it was killed.
		_ = cmd.Wait()
	}
	return g.lifeline.Close()
}

// startShell runs a script in its own process group, which a terminal's Ctrl-C does not reach.
func startShell(stdin *os.File, script string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", script}, args...)...)
	cmd.Stdin = stdin
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	return cmd, nil
}
