// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"navix.sh/atoll/e2e/must"
)

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	defer syscall.Umask(syscall.Umask(0o077))
	for range 2 { // an init container may run again
		if code, err := run([]string{"--install", dir}); code != 0 || err != nil {
			t.Fatalf("exit code %d, %v", code, err)
		}
	}
	self, err := os.Executable()
	must.Succeed(t, err)
	want, err := os.ReadFile(self)
	must.Succeed(t, err)
	path := filepath.Join(dir, "atoll-sandboxd")
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o555 {
		t.Fatalf("the program has mode %v, %v", info.Mode(), err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy differs (%v)", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	if code, err := run([]string{"--install", filepath.Join(dir, "none")}); code == 0 || err == nil {
		t.Errorf("into no directory: exit code %d, %v", code, err)
	}
}
