// SPDX-License-Identifier: Apache-2.0

//go:build linux

package powercut

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// node is a file or a directory in its durable state. Its changes are in a separate list.
type node struct {
	content []byte
	names   map[string]*node // nil: a file
}

// change is the effect of one system call on the disk.
type change struct {
	what string
	file *node // nil: it changes names
	// Of a file: content at an offset, or a new size.
	offset  int64
	content []byte
	resize  bool

	names  []name
	synced *node // the node to sync
}

type name struct {
	dir  *node
	name string
	node *node // nil: removed
}

// fate is the part of a change that survives a power cut.
type fate int

const (
	lost fate = iota
	quarter
	half // a part of a write, in whole sectors
	most
	kept
	room // zeros instead of a write
	fates
)

func (f fate) String() string {
	return [...]string{"lost", "a quarter kept", "a half kept", "three quarters kept", "kept", "only the room for it kept"}[f]
}

const sector = 512

// view is a state of the disk: nodes with changes applied.
type view struct{ nodes map[*node]*node }

func (v *view) of(n *node) *node {
	c, ok := v.nodes[n]
	if !ok {
		c = &node{content: bytes.Clone(n.content), names: maps.Clone(n.names)}
		v.nodes[n] = c
	}
	return c
}

func (v *view) apply(c *change, f fate) {
	if f == lost {
		return
	}
	for _, n := range c.names {
		if dir := v.of(n.dir); n.node == nil {
			delete(dir.names, n.name)
		} else {
			dir.names[n.name] = n.node
		}
	}
	if c.file == nil {
		return
	}
	file := v.of(c.file)
	if c.resize {
		file.content = sized(file.content, c.offset)
		return
	}
	content := c.content
	if f < kept {
		content = content[:len(content)*int(f)/int(kept)/sector*sector]
	}
	file.content = sized(file.content, max(int64(len(file.content)), c.offset+int64(len(content))))
	if f != room {
		copy(file.content[c.offset:], content)
	}
}

func sized(content []byte, size int64) []byte {
	if more := size - int64(len(content)); more > 0 {
		return append(content, make([]byte, more)...)
	}
	return content[:size]
}

// tree lists a state by path. Directories end with a slash.
func (v *view) tree(n *node, path string, into map[string][]byte) {
	for name, child := range v.of(n).names {
		if child.names == nil {
			into[path+name] = v.of(child).content
			continue
		}
		into[path+name+"/"] = nil
		v.tree(child, path+name+"/", into)
	}
}

// disk has the durable state and the pending changes, in the order of the calls.
type disk struct {
	root    *node
	pending []*change
}

// state returns the disk after a power cut with these fates of the pending changes; without fates, all are kept.
func (d *disk) state(fates []fate) map[string][]byte {
	v := view{map[*node]*node{}}
	for i, c := range d.pending {
		f := kept
		if fates != nil {
			f = fates[i]
		}
		v.apply(c, f)
	}
	into := map[string][]byte{}
	v.tree(d.root, "", into)
	return into
}

// settle makes changes durable.
func (d *disk) settle(changes []*change) {
	v := view{map[*node]*node{}}
	d.pending = slices.DeleteFunc(d.pending, func(c *change) bool {
		if !slices.Contains(changes, c) {
			return false
		}
		v.apply(c, kept)
		return true
	})
	for n, now := range v.nodes {
		*n = *now
	}
}

func digest(state map[string][]byte) [sha256.Size]byte {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(state)) {
		fmt.Fprintf(h, "%s\x00%d\x00%s", path, len(state[path]), state[path])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// load reads a real directory.
func load(dir string) (map[string][]byte, error) {
	state := map[string][]byte{}
	return state, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel := strings.TrimPrefix(path, dir+"/")
		if e.IsDir() {
			state[rel+"/"] = nil
			return nil
		}
		state[rel], err = os.ReadFile(path)
		return err
	})
}

func store(dir string, state map[string][]byte) error {
	errs := []error{os.Mkdir(dir, 0o700)}
	for _, path := range slices.Sorted(maps.Keys(state)) { // a directory comes before its contents
		if strings.HasSuffix(path, "/") {
			errs = append(errs, os.Mkdir(filepath.Join(dir, path), 0o700))
		} else {
			errs = append(errs, os.WriteFile(filepath.Join(dir, path), state[path], 0o600))
		}
	}
	return errors.Join(errs...)
}

// differ returns the difference of two states.
func differ(want, got map[string][]byte) error {
	var errs []error
	for path, content := range want {
		if other, ok := got[path]; !ok {
			errs = append(errs, fmt.Errorf("%s is missing", path))
		} else if !bytes.Equal(content, other) {
			errs = append(errs, fmt.Errorf("%s has another content, %d bytes and not %d", path, len(other), len(content)))
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			errs = append(errs, fmt.Errorf("%s is there", path))
		}
	}
	return errors.Join(errs...)
}
