// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"navix.sh/atoll/api/envd"
	filesystemv1 "navix.sh/atoll/api/envd/filesystem"
	"navix.sh/atoll/e2e/must"
)

// elsewhere is a folder on another filesystem than those of the test.
func elsewhere(t *testing.T) string {
	t.Helper()
	var here, there syscall.Stat_t
	must.Succeed(t, syscall.Stat(t.TempDir(), &here))
	for _, parent := range []string{"/dev/shm", "/var/tmp"} { // the second where TMPDIR is on the first
		dir, err := os.MkdirTemp(parent, "atoll")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		must.Succeed(t, syscall.Stat(dir, &there))
		if here.Dev != there.Dev {
			return dir
		}
	}
	t.Fatal("there is no other filesystem, such as a tmpfs at /dev/shm")
	return ""
}

func (s *sandbox) move(from, to string) error {
	_, err := call[filesystemv1.MoveResponse](s, envd.FilesystemMove, &filesystemv1.MoveRequest{Source: from, Destination: to})
	return err
}

func TestAMoveReachesAnotherFilesystem(t *testing.T) {
	s := opened(t)
	there, from := elsewhere(t), filepath.Join(t.TempDir(), "tree")
	must.Succeed(t, os.MkdirAll(filepath.Join(from, "sub"), 0o700))
	modes := map[string]fs.FileMode{"sub/tool": 0o755, "data": 0o400}
	for name, mode := range modes {
		must.Succeed(t, os.WriteFile(filepath.Join(from, name), []byte(name), mode))
	}
	must.Succeed(t, os.Symlink("/no/such", filepath.Join(from, "link")))
	must.Succeed(t, os.Chmod(filepath.Join(from, "sub"), 0o750))
	to := filepath.Join(there, "new", "tree")
	must.Succeed(t, s.move(from, to))
	for name, mode := range modes {
		text, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || string(text) != name {
			t.Errorf("%s has %q, %v", name, text, err)
		}
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", name, info, err, mode)
		}
	}
	if link, err := os.Readlink(filepath.Join(to, "link")); err != nil || link != "/no/such" {
		t.Errorf("the link leads to %q, %v", link, err)
	}
	if info, err := os.Stat(filepath.Join(to, "sub")); err != nil || info.Mode() != fs.ModeDir|0o750 {
		t.Errorf("the folder: %v, %v", info, err)
	}
	if _, err := os.Lstat(from); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the source: %v", err)
	}
	// A file replaces another one, and its copy leaves nothing beside it.
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, []byte("new"), 0o600))
	must.Succeed(t, s.move(file, filepath.Join(to, "sub", "tool")))
	if text, err := os.ReadFile(filepath.Join(to, "sub", "tool")); err != nil || string(text) != "new" {
		t.Errorf("the file that was replaced has %q, %v", text, err)
	}
	for _, folder := range []string{filepath.Dir(to), filepath.Join(to, "sub")} {
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
			t.Errorf("%s has %v, %v", folder, entries, err)
		}
	}
}

// What cannot be copied stays, and no part of it is at the target.
func TestAMoveToAnotherFilesystemThatFails(t *testing.T) {
	s := opened(t)
	there, from := elsewhere(t), filepath.Join(t.TempDir(), "tree")
	must.Succeed(t, os.Mkdir(from, 0o700))
	must.Succeed(t, os.WriteFile(filepath.Join(from, "data"), nil, 0o600))
	must.Succeed(t, syscall.Mkfifo(filepath.Join(from, "pipe"), 0o600))
	if err := s.move(from, filepath.Join(there, "tree")); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a folder with a pipe: %v, want an invalid argument", err)
	}
	if entries, err := os.ReadDir(there); err != nil || len(entries) != 0 {
		t.Errorf("the target's folder has %v, %v", entries, err)
	}
	if entries, err := os.ReadDir(from); err != nil || len(entries) != 2 {
		t.Errorf("the source has %v, %v", entries, err)
	}
}

// A folder can be above a mount of another filesystem.
func TestAFolderIsNotCopiedIntoItself(t *testing.T) {
	from := t.TempDir()
	mount := filepath.Join(from, "mount")
	must.Succeed(t, os.Mkdir(mount, 0o700))
	if err := moveAcross(t.Context(), from, filepath.Join(mount, "target")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v, want EINVAL", err)
	}
	if entries, err := os.ReadDir(mount); err != nil || len(entries) != 0 {
		t.Errorf("%s has %v, %v", mount, entries, err)
	}
}
