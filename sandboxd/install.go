// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// programMode lets every user run the program, and none change it.
const programMode = 0o555

// install copies this program to a directory, in one step; because an init container may run again after a part of it.
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
	// Not CreateTemp's mode, and not one that is subject to a umask.
	err = errors.Join(err, to.Chmod(programMode), to.Close())
	if err == nil {
		err = os.Rename(to.Name(), filepath.Join(dir, "atoll-sandboxd"))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("installing into %s: %w", dir, err), os.Remove(to.Name()))
	}
	return nil
}
