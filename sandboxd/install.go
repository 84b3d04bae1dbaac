// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// programMode lets every user run the program, and no user change it.
const programMode = 0o555

// install copies this program to a directory atomically, because an init container that stopped halfway may run again.
func install(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	from, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("reading this program: %w", err)
	}
	defer from.Close()
	to, err := os.CreateTemp(dir, ".atoll-sandboxd-*")
	if err != nil {
		return fmt.Errorf("installing into %s: %w", dir, err)
	}
	_, err = io.Copy(to, from)
	// CreateTemp's mode would differ, and a mode at creation would be subject to the umask.
	err = errors.Join(err, to.Chmod(programMode), to.Close())
	if err == nil {
		err = os.Rename(to.Name(), filepath.Join(dir, "atoll-sandboxd"))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("installing into %s: %w", dir, err), os.Remove(to.Name()))
	}
	return nil
}
