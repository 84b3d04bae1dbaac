// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// LimitFiles implements FullDisk by a resource limit, which needs no privileges, unlike a small file system. Go programs ignore
// its signal. It limits the program's other files too, its log included.
func (p *process) LimitFiles(bytes int64) error {
	pid, err := p.pid()
	if err != nil {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &limit); err != nil {
		return fmt.Errorf("reading the limits of %s: %w", p.name, err)
	}
	if limit.Cur = limit.Max; bytes >= 0 {
		limit.Cur = uint64(bytes)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		return fmt.Errorf("limiting the files of %s: %w", p.name, err)
	}
	return nil
}
