// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"os/exec"
	"syscall"
)

// Adopt makes a command, before it is started, share the fate of the set: whoever takes the set down, be it Down, Ctrl-C
// or the guard of a killed owner, takes the command down with it.
func (s *Set) Adopt(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: s.guard.group()}
}

// Dir is removed with the set. It is for the files of adopted commands.
func (s *Set) Dir() string { return s.state.dir }
