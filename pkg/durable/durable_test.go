// SPDX-License-Identifier: Apache-2.0

//go:build linux

package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"navix.sh/atoll/pkg/durable"
)

// TestADirectoryThatCannotBeMadeIsAnError: /proc says of each name below it that there is no such directory, although it is one.
func TestADirectoryThatCannotBeMadeIsAnError(t *testing.T) {
	for _, path := range []string{"/proc/atoll", "/proc/atoll/data"} {
		if err := durable.MkdirAll(path, 0o700); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "data")} {
		if err := durable.MkdirAll(path, 0o700); err == nil {
			t.Errorf("%s: was made", path)
		}
	}
}

func TestADirectoryIsMadeWithItsParents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "c")
	for range 2 {
		if err := durable.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		t.Errorf("%v: %v", info, err)
	}
}
