// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	copiedNames = 256      // names that are read at a time from a copied folder
	copiedBytes = 64 << 20 // of a copied file, between checks whether the caller has left
)

// moveAcross moves a path to another filesystem. It copies the source beside the target first, so that the target is always either complete
// or what it was before. It removes the source last.
func moveAcross(ctx context.Context, from, to string) error {
	source, err := os.OpenRoot(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // files are written through their own handles
	target, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	beside := ".atoll-move-" + rand.Text()
	c := &copier{from: source, to: target}
	err = c.copy(ctx, filepath.Base(from), beside)
	if err == nil {
		err = target.Rename(beside, filepath.Base(to))
	}
	if err != nil {
		return errors.Join(err, target.RemoveAll(beside))
	}
	return source.RemoveAll(filepath.Base(from))
}

// copier copies files, folders and links from one folder to another. Nothing outside of the two can be reached, not even through a link.
type copier struct {
	from, to *os.Root
	top      fs.FileInfo // the first folder that was created
}

func (c *copier) copy(ctx context.Context, from, to string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := c.from.Lstat(from)
	switch {
	case err != nil:
		return err
	case c.top != nil && os.SameFile(info, c.top): // the target is below the source
		return &fs.PathError{Op: "move", Path: from, Err: syscall.EINVAL}
	case info.IsDir():
		err = c.folder(ctx, from, to)
	case info.Mode()&fs.ModeSymlink != 0:
		var link string
		if link, err = c.from.Readlink(from); err == nil {
			err = c.to.Symlink(link, to)
		}
	case info.Mode().IsRegular():
		err = c.file(ctx, from, to)
	default:
		return fmt.Errorf("%q cannot be copied to another filesystem: %w", from, errSpecial)
	}
	if err != nil {
		return err
	}
	return c.keep(to, info)
}

func (c *copier) folder(ctx context.Context, from, to string) error {
	err := c.to.Mkdir(to, 0o700)
	if err == nil && c.top == nil {
		c.top, err = c.to.Lstat(to)
	}
	if err != nil {
		return err
	}
	folder, err := c.from.Open(from)
	if err != nil {
		return err
	}
	defer folder.Close()
	for {
		entries, err := folder.ReadDir(copiedNames)
		for _, entry := range entries {
			if err := c.copy(ctx, filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *copier) file(ctx context.Context, from, to string) error {
	in, err := c.from.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0) // may be a pipe by now
	if err != nil {
		return err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, errSpecial)
	}
	out, err := c.to.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for err == nil {
		if _, err = io.CopyN(out, in, copiedBytes); err == nil {
			err = ctx.Err()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, out.Close())
}

// keep gives a copy the owner, permissions and time of its original. If the owner cannot be set, it clears setuid and setgid, so that no
// program runs as another owner.
func (c *copier) keep(to string, info fs.FileInfo) error {
	mode := info.Mode()
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && c.to.Lchown(to, int(sys.Uid), int(sys.Gid)) != nil {
		mode &^= fs.ModeSetuid | fs.ModeSetgid
	}
	if mode&fs.ModeSymlink != 0 {
		return nil
	}
	if err := c.to.Chmod(to, mode); err != nil {
		return err
	}
	return c.to.Chtimes(to, info.ModTime(), info.ModTime())
}
