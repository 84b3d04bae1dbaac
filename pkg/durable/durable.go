// SPDX-License-Identifier: Apache-2.0

// Package durable writes files that survive a power cut. A file is durable when its content and its name are: the content after a sync of
// the file, the name after a sync of its directory, and the directory's name after a sync of the parent.
//
// A test with package powercut shows that a package does this correctly.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile calls write with a new file, and returns when the file at path is durable. The replacement is atomic: at any time, and after a
// power cut, path is either the old file or the new one. A failure leaves no other file behind.
func WriteFile(path string, mode fs.FileMode, write func(f *os.File) error) (err error) {
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir), "."+name+"-*")
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(filepath.Dir(path))
}

// Rename renames a file, and returns when its new name is durable. The caller must have synced the content.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// MkdirAll creates a directory and its parents, and returns when all of them are durable. It also syncs an existing directory, because the
// process that created it may have died before its sync.
func MkdirAll(path string, mode fs.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := MkdirAll(filepath.Dir(path), mode); err != nil {
			return err
		}
		err = os.Mkdir(path, mode) // it may fail as before: a file system such as /proc takes no directories
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		if info, statErr := os.Stat(path); statErr != nil || !info.IsDir() {
			return err
		}
		if err := SyncDir(filepath.Dir(path)); !errors.Is(err, fs.ErrPermission) { // without write permission, nothing was created there
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
