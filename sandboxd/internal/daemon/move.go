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
	copiedNames = 256      // of a folder that is copied, at a time
	copiedBytes = 64 << 20 // of a file that is copied, before its caller may have left
)

// moveAcross moves what a path names to another filesystem. It is copied beside the target first; because the target is to be whole, or
// what it was. The source goes last.
func moveAcross(ctx context.Context, from, to string) error {
	source, err := os.OpenRoot(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // files are written by handles of their own
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

// copier copies files, folders and links from one folder to another. Nothing beyond these is reached, also not by way of a link.
type copier struct {
	from, to *os.Root
	top      fs.FileInfo // of the first folder that was made
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
	in, err := c.from.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
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

// keep gives a copy the owner, permissions and time of what it is of. Where it cannot have the owner, no program runs as that.
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
