// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/unprivileged"
)

// TestACopyOntoAFileOfAFolderThatTakesNoOther: it is written in place, as GNU cp does. One that is not there cannot be made.
func TestACopyOntoAFileOfAFolderThatTakesNoOther(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.Succeed(t, os.WriteFile(file, []byte("longer before"), 0o640))
	was, err := os.Stat(file)
	must.Succeed(t, err)
	must.Succeed(t, os.Chmod(dir, 0o500))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	unprivileged.Goroutine(t)
	after := func(w io.Writer) error {
		_, err := io.WriteString(w, "after")
		return err
	}
	must.Succeed(t, toFile(file, after))
	if got, err := os.ReadFile(file); err != nil || string(got) != "after" {
		t.Errorf("a copy has %q: %v", got, err)
	}
	if is, err := os.Stat(file); err != nil || !os.SameFile(is, was) || is.Mode() != was.Mode() {
		t.Errorf("the file is %v, %v, it was %v", is, err, was)
	}
	broken := errors.New("it broke off")
	if err := toFile(file, func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a copy that breaks off: %v", err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "after" {
		t.Errorf("a copy that did not begin leaves %q: %v", got, err)
	}
	must.Succeed(t, toFile(file, func(io.Writer) error { return nil }))
	if got, err := os.ReadFile(file); err != nil || len(got) > 0 {
		t.Errorf("a copy of an empty file has %q: %v", got, err)
	}
	if err := toFile(filepath.Join(dir, "other"), after); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a file that is not there: %v", err)
	}
	if got := namesIn(t, dir); got != "file" {
		t.Errorf("there are %q", got)
	}
}
