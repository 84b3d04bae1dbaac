// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"navix.sh/atoll/e2e/must"
)

// TestADraftThatWasCutOffIsBegunAnew, wherever it was.
func TestADraftThatWasCutOffIsBegunAnew(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "s.db")
	draft, err := openDraft(whole)
	must.Succeed(t, err)
	must.Succeed(t, draft.Close())
	content, err := os.ReadFile(whole)
	must.Succeed(t, err)
	for size := 0; size <= len(content); size += 1024 {
		path := filepath.Join(t.TempDir(), "s.db")
		must.Succeed(t, os.WriteFile(path+".new", content[:size], 0o600))
		s, err := OpenBolt(path, "test")
		if err != nil {
			t.Errorf("cut off at %d of %d: %v", size, len(content), err)
			continue
		}
		must.Succeed(t, s.Close())
	}
}

// Of two processes that start on one directory the second takes the first one's file, from which that may serve already.
func TestASecondFirstStartReplacesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	first, err := OpenBolt(path, "test")
	must.Succeed(t, err)
	defer first.Close()
	before, err := os.Stat(path)
	must.Succeed(t, err)
	must.Succeed(t, (layout{kind: "test"}).create(path)) // of a process that has found no file
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was replaced: %v", err)
	}
	if _, err := os.Lstat(draftOf(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the second one's draft is still there: %v", err)
	}
}

// A process that dies between the link and the removal of its draft leaves a second name, which the next start removes.
func TestADraftThatIsTheFileGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	for range 2 {
		s, err := OpenBolt(path, "test")
		must.Succeed(t, err)
		must.Succeed(t, s.Close())
		if _, err := os.Lstat(draftOf(path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a draft is there: %v", err)
		}
		must.Succeed(t, os.Link(path, draftOf(path)))
	}
}

func TestAFileThatCannotHaveItsNameIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	must.Succeed(t, os.MkdirAll(filepath.Join(path, "full"), 0o700))
	if err := (layout{kind: "test"}).create(path); err == nil {
		t.Error("a directory was taken for the file")
	}
}

// A draft gets its name by a link. A draft that cannot be linked is renamed; a directory stands for a file system without links.
func TestADraftIsPublished(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"a file":                func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"what cannot be linked": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(t.TempDir(), "s.db")
		must.Succeed(t, create(draftOf(path)))
		err := publish(draftOf(path), path)
		_, there := os.Lstat(path)
		_, draft := os.Lstat(draftOf(path))
		if err != nil || there != nil || !errors.Is(draft, os.ErrNotExist) {
			t.Errorf("%s: %v; the file: %v, its draft: %v", name, err, there, draft)
		}
	}
}

// A draft that is not the file belongs to another process.
func TestADraftOfAnotherStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s, err := OpenBolt(path, "test")
	must.Succeed(t, err)
	must.Succeed(t, s.Close())
	must.Succeed(t, os.WriteFile(draftOf(path), []byte("another"), 0o600))
	s, err = OpenBolt(path, "test")
	must.Succeed(t, err)
	must.Succeed(t, s.Close())
	if content, err := os.ReadFile(draftOf(path)); err != nil || string(content) != "another" {
		t.Errorf("the draft is %q, %v", content, err)
	}
}
