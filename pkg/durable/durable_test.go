// SPDX-License-Identifier: Apache-2.0

//go:build linux

package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/durable"
)

func TestMkdirAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "c")
	for range 2 { // the second finds it
		must.Succeed(t, durable.MkdirAll(dir, 0o700))
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	file := filepath.Join(dir, "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	for name, path := range map[string]string{"a file": file, "below a file": filepath.Join(file, "d"), "no name": ""} {
		if err := durable.MkdirAll(path, 0o700); err == nil {
			t.Errorf("%s: no error for %q", name, path)
		}
	}
}

// A file system that takes no directories says that the parent does not exist, though it does.
func TestMkdirAllWhereNoneCanBe(t *testing.T) {
	if err := durable.MkdirAll("/proc/atoll", 0o700); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// A file that cannot have its name leaves nothing behind; because its writer tries again and again.
func TestAFileThatCannotHaveItsNameLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	must.Succeed(t, os.Mkdir(path, 0o700))
	for range 2 {
		err := durable.WriteFile(path, 0o600, func(f *os.File) error {
			_, err := f.WriteString("content")
			return err
		})
		if err == nil {
			t.Error("a directory was taken for the file")
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}
