// SPDX-License-Identifier: Apache-2.0

//go:build linux

package powercut

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// markFD is the descriptor to which the process writes its marks.
const markFD = 3

// event is one step of the work: a change, a sync, or a mark. A point follows each event.
type event struct {
	change *change
	synced []*change
	mark   bool
}

// recorder turns system calls into events. It follows the names and files of a directory by their inodes.
type recorder struct {
	dir    string
	device uint64
	root   *node
	inodes map[uint64]*node
	now    view // as the running system sees it
	events []event
	// unsynced are the changes that are not durable yet.
	unsynced []*change

	// killAfter is the number of the name change after which the process is killed; 0: none.
	killAfter, renamed int
	begun              int // the event at which the work last began
}

func newRecorder(dir string) (*recorder, error) {
	r := &recorder{dir: dir, inodes: map[uint64]*node{}, now: view{map[*node]*node{}}}
	var err error
	r.root, err = r.adopt(dir)
	return r, err
}

// adopt records a directory's contents before the work as durable.
func (r *recorder) adopt(path string) (*node, error) {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return nil, fmt.Errorf("looking at %s: %w", path, err)
	}
	n := &node{}
	r.device, r.inodes[s.Ino] = s.Dev, n
	var err error
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		n.content, err = os.ReadFile(path)
		return n, err
	}
	n.names = map[string]*node{}
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		child, childErr := r.adopt(filepath.Join(path, e.Name()))
		n.names[e.Name()] = child
		err = errors.Join(err, childErr)
	}
	return n, err
}

func (r *recorder) change(c *change) error {
	if c.synced == nil {
		c.synced = c.file
	}
	r.now.apply(c, kept)
	r.events, r.unsynced = append(r.events, event{change: c}), append(r.unsynced, c)
	if c.file == nil {
		r.renamed++
	}
	if r.killAfter > 0 && r.renamed == r.killAfter {
		return errKill
	}
	return nil
}

// place returns a name in a traced directory; nil for any other.
func (r *recorder) place(c *call, at uint64, path string) (*name, error) {
	if !filepath.IsAbs(path) {
		link := fmt.Sprintf("/proc/%d/fd/%d", c.pid, int32(at))
		if int32(at) == unix.AT_FDCWD {
			link = fmt.Sprintf("/proc/%d/cwd", c.pid)
		}
		base, err := os.Readlink(link)
		if err != nil {
			return nil, fmt.Errorf("following a path: %w", err)
		}
		path = filepath.Join(base, path)
	}
	rel, ok := strings.CutPrefix(filepath.Clean(path), r.dir+"/")
	if !ok {
		return nil, nil
	}
	n := &name{dir: r.root}
	for {
		head, rest, more := strings.Cut(rel, "/")
		child := r.now.of(n.dir).names[head]
		if !more {
			n.name, n.node = head, child
			return n, nil
		}
		if child == nil || child.names == nil {
			return nil, fmt.Errorf("the model has no directory %s of %s", head, path)
		}
		n.dir, rel = child, rest
	}
}

// node returns the node of a descriptor; nil if it is not traced.
func (r *recorder) node(c *call, fd uint64) (*node, error) {
	var s unix.Stat_t
	err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", c.pid, int32(fd)), &s)
	if err != nil || s.Dev != r.device {
		return nil, err
	}
	return r.inodes[s.Ino], nil
}

// paths has, for each call, the arguments that are a directory and a path in it.
var paths = map[uint64][][2]int{
	unix.SYS_OPENAT:    {{0, 1}},
	unix.SYS_MKDIRAT:   {{0, 1}},
	unix.SYS_UNLINKAT:  {{0, 1}},
	unix.SYS_LINKAT:    {{0, 1}, {2, 3}},
	unix.SYS_RENAMEAT2: {{0, 1}, {2, 3}},
	unix.SYS_RENAMEAT:  {{0, 1}, {2, 3}},
	unix.SYS_SYMLINKAT: {{1, 2}},
}

func (r *recorder) entered(c *call) error {
	switch c.number {
	case unix.SYS_WRITE:
		if c.args[0] == markFD {
			r.events = append(r.events, event{mark: true})
		}
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		n, err := r.node(c, c.args[0])
		if err != nil || n == nil {
			return ignore(err)
		}
		for _, u := range r.unsynced { // writes during the sync may miss it
			if u.synced == n {
				c.pending = append(c.pending, u)
			}
		}
	}
	for _, p := range paths[c.number] {
		path, err := c.path(c.args[p[1]])
		if err != nil {
			return err
		}
		c.paths = append(c.paths, path)
	}
	return nil
}

func (r *recorder) returned(c *call) error {
	if c.result < 0 {
		return nil
	}
	var at []*name
	for i, p := range paths[c.number] {
		n, err := r.place(c, c.args[p[0]], c.paths[i])
		if err != nil {
			return err
		}
		at = append(at, n)
	}
	switch c.number {
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		if len(c.pending) > 0 {
			r.events = append(r.events, event{synced: c.pending})
			r.unsynced = slices.DeleteFunc(r.unsynced, func(u *change) bool { return slices.Contains(c.pending, u) })
		}
		return nil
	case unix.SYS_OPENAT:
		return r.opened(c, at[0])
	case unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_LINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_SYMLINKAT:
		return r.named(c, at)
	}
	return r.written(c)
}

func (r *recorder) opened(c *call, at *name) error {
	const other = unix.O_DSYNC | unix.O_TMPFILE&^unix.O_DIRECTORY
	flags := c.args[2]
	switch {
	case at == nil:
		return nil
	case flags&other != 0:
		return fmt.Errorf("%s is opened with flags %#x, which are not modelled", at.name, flags)
	case at.node == nil:
		made := &node{}
		if err := r.track(fmt.Sprintf("/proc/%d/fd/%d", c.pid, c.result), made); err != nil {
			return err
		}
		return r.change(&change{what: "make " + at.name, names: []name{{at.dir, at.name, made}}, synced: at.dir})
	case flags&unix.O_TRUNC != 0 && len(r.now.of(at.node).content) > 0:
		return r.change(&change{what: "empty " + at.name, file: at.node, resize: true})
	}
	return nil
}

func (r *recorder) track(path string, n *node) error {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return fmt.Errorf("looking at %s: %w", path, err)
	}
	r.inodes[s.Ino] = n
	return nil
}

func (r *recorder) named(c *call, at []*name) error {
	first, last := at[0], at[len(at)-1]
	if first == nil && last == nil {
		return nil
	}
	if first == nil || last == nil {
		return fmt.Errorf("%q lead into the directory from outside", c.paths)
	}
	changed := &change{synced: last.dir}
	switch c.number {
	case unix.SYS_MKDIRAT:
		made := &node{names: map[string]*node{}}
		if err := r.track(filepath.Join(r.dir, r.pathOf(first.dir), first.name), made); err != nil {
			return err
		}
		changed.what, changed.names = "mkdir "+first.name, []name{{first.dir, first.name, made}}
	case unix.SYS_UNLINKAT:
		changed.what, changed.names = "remove "+first.name, []name{{first.dir, first.name, nil}}
	case unix.SYS_LINKAT:
		changed.what, changed.names = "link "+first.name+" to "+last.name, []name{{last.dir, last.name, first.node}}
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		changed.what = "rename " + first.name + " to " + last.name
		changed.names = []name{{first.dir, first.name, nil}, {last.dir, last.name, first.node}}
	default:
		return fmt.Errorf("a symbolic link %q is not modelled", c.paths)
	}
	return r.change(changed)
}

// pathOf returns a directory's path.
func (r *recorder) pathOf(dir *node) string {
	var find func(n *node, path string) (string, bool)
	find = func(n *node, path string) (string, bool) {
		if n == dir {
			return path, true
		}
		for name, child := range r.now.of(n).names {
			if child.names != nil {
				if found, ok := find(child, filepath.Join(path, name)); ok {
					return found, true
				}
			}
		}
		return "", false
	}
	path, _ := find(r.root, "")
	return path
}

// written records calls that change a file's content, and refuses calls that the model lacks.
func (r *recorder) written(c *call) error {
	out := c.args[0]
	switch c.number {
	case unix.SYS_SENDFILE, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE:
	case unix.SYS_COPY_FILE_RANGE, unix.SYS_SPLICE:
		out = c.args[2]
	default:
		return nil
	}
	n, err := r.node(c, out)
	if err != nil || n == nil {
		return ignore(err)
	}
	link := fmt.Sprintf("/proc/%d/fd/%d", c.pid, int32(out))
	path, err := os.Readlink(link)
	if err != nil {
		return err
	}
	path = filepath.Base(path)
	var offset int64
	switch c.number {
	case unix.SYS_FTRUNCATE:
		return r.change(&change{what: fmt.Sprintf("resize %s to %d", path, c.args[1]), file: n, offset: int64(c.args[1]), resize: true})
	case unix.SYS_PWRITE64:
		offset = int64(c.args[3])
	case unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_SENDFILE, unix.SYS_COPY_FILE_RANGE:
		if c.number == unix.SYS_COPY_FILE_RANGE && c.args[3] != 0 {
			return fmt.Errorf("a copy to an offset of %s is not modelled", path)
		}
		if offset, err = position(c, out); err != nil {
			return err
		}
		offset -= c.result
	default:
		return fmt.Errorf("call %d on %s is not modelled", c.number, path)
	}
	content := make([]byte, c.result)
	f, err := os.Open(link)
	if err != nil {
		return fmt.Errorf("reading what was written: %w", err)
	}
	_, err = f.ReadAt(content, offset)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("reading what was written: %w", err)
	}
	what := fmt.Sprintf("write %s at %d, %d bytes", path, offset, len(content))
	return r.change(&change{what: what, file: n, offset: offset, content: content})
}

// position returns the end of a descriptor's last write.
func position(c *call, fd uint64) (at int64, err error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", c.pid, int32(fd)))
	if err == nil {
		_, err = fmt.Sscanf(string(info), "pos: %d", &at)
	}
	return at, err
}

// ignore: a descriptor that another thread has closed is not traced.
func ignore(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
