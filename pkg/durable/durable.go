// SPDX-License-Identifier: Apache-2.0

// Package durable writes files that survive a power cut. A file is durable once its content and its name are: the content by
// a sync of the file, the name by a sync of its directory, and the directory's name by a sync of the one above.
//
// Package powercut shows that a package does this.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile has write fill the file at path and returns once the file is durable. The file appears whole: at any time, and
// after a power cut, it is the old one or the new one.
func WriteFile(path string, mode fs.FileMode, write func(f *os.File) error) (err error) {
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir), "."+name+"-*")
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return Rename(f.Name(), path)
}

// Rename renames a file and returns once its new name is durable. The content is for the caller to sync before.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// MkdirAll makes a directory and those above it, and returns once all that it made are durable, and the directory itself: the
// process that made it may have died before.
func MkdirAll(path string, mode fs.FileMode) error {
	switch err := os.Mkdir(path, mode); {
	case errors.Is(err, fs.ErrNotExist):
		if err := MkdirAll(filepath.Dir(path), mode); err != nil {
			return err
		}
		return MkdirAll(path, mode)
	case errors.Is(err, fs.ErrExist):
		if info, statErr := os.Stat(path); statErr != nil || !info.IsDir() {
			return err
		}
		if err := SyncDir(filepath.Dir(path)); !errors.Is(err, fs.ErrPermission) { // who may not write there made nothing there
			return err
		}
		return nil
	case err != nil:
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory durable.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
