// SPDX-License-Identifier: Apache-2.0

//go:build linux

package powercut

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navix.sh/atoll/pkg/durable"
)

// The work of TestRun writes a file twice. Each variant omits one step of durability, or none.
var works = []struct {
	name, lost string // lost: what the check says, "" if nothing is
	restart    bool
	write      func(path, content string) error
}{
	{name: "durable.WriteFile", write: writeFile},
	{name: "durable.WriteFile, begun again", restart: true, write: writeFile},
	{name: "no sync of the file", lost: `holds ""`, write: func(path, content string) error {
		return errors.Join(os.WriteFile(path+".new", []byte(content), 0o600), durable.Rename(path+".new", path))
	}},
	{name: "no sync of the directory", lost: "no such file", write: func(path, content string) error {
		return errors.Join(writeAndSync(path+".new", content), os.Rename(path+".new", path))
	}},
	{name: "the sync of the file comes after the rename", lost: `holds ""`, write: func(path, content string) error {
		err := errors.Join(os.WriteFile(path+".new", []byte(content), 0o600), durable.Rename(path+".new", path))
		f, openErr := os.OpenFile(path, os.O_RDWR, 0)
		return errors.Join(err, openErr, f.Sync(), f.Close())
	}},
	{name: "in place", lost: `holds ""`, write: func(path, content string) error {
		return errors.Join(writeAndSync(path, content), durable.SyncDir(filepath.Dir(path)))
	}},
	{name: "removed before the rename", lost: "no such file", write: func(path, content string) error {
		err := writeAndSync(path+".new", content)
		if removed := os.Remove(path); !errors.Is(removed, os.ErrNotExist) {
			err = errors.Join(err, removed)
		}
		return errors.Join(err, durable.Rename(path+".new", path))
	}},
	{name: "a name that is there is believed", lost: "no such file", restart: true, write: func(path, content string) error {
		if was, err := os.ReadFile(path); err == nil && string(was) >= content {
			return nil // its writer may have died before the sync of the directory
		}
		return errors.Join(writeAndSync(path+".new", content), durable.Rename(path+".new", path))
	}},
}

func writeFile(path, content string) error {
	return durable.WriteFile(path, 0o600, func(f *os.File) error {
		_, err := f.WriteString(content)
		return err
	})
}

func writeAndSync(path, content string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Sync(), f.Close())
}

func TestRun(t *testing.T) {
	for _, w := range works {
		t.Run(w.name, func(t *testing.T) {
			c := Case{
				Restart: w.restart,
				Do: func(dir string, mark func(string)) error {
					path := filepath.Join(dir, "a", "b", "file")
					if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
						return err
					}
					for _, content := range []string{"1", "2"} {
						if err := w.write(path, content); err != nil {
							return err
						}
						mark(content)
					}
					return nil
				},
				Before: func(dir string) error { return os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700) },
				Check:  check,
			}
			if !w.restart {
				c.Before = nil
			}
			if os.Getenv(dirVariable) != "" || w.lost == "" {
				Run(t, c)
				return
			}
			if _, err := explore(t.Name(), t.TempDir(), c); err == nil || !strings.Contains(err.Error(), w.lost) {
				t.Errorf("%v, want %s", err, w.lost)
			}
		})
	}
}

func check(dir string, marks []string) error {
	content, err := os.ReadFile(filepath.Join(dir, "a", "b", "file"))
	if len(marks) == 0 && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if got := string(content); err != nil || !slices.Contains([]string{"1", "2"}, got) || len(marks) > 0 && got < marks[len(marks)-1] {
		return errors.Join(fmt.Errorf("the file holds %q", got), err)
	}
	return nil
}

// TestACallThatIsNotModelledFails: otherwise the model would be wrong.
func TestACallThatIsNotModelledFails(t *testing.T) {
	c := Case{
		Do: func(dir string, _ func(string)) error {
			return os.Symlink("elsewhere", filepath.Join(dir, "link"))
		},
		Check: func(string, []string) error { return nil },
	}
	if os.Getenv(dirVariable) != "" {
		Run(t, c)
	}
	if _, err := explore(t.Name(), t.TempDir(), c); err == nil || !strings.Contains(err.Error(), "not modelled") {
		t.Errorf("%v", err)
	}
}
