// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	filesystemv1 "navix.sh/atoll/api/envd/filesystem"
)

const maxEntries = 10_000

// failed maps an error of the filesystem to the one that callers get.
func failed(doing, path string, err error) error {
	code := connect.CodeInternal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = connect.CodeNotFound
	case errors.Is(err, fs.ErrExist):
		code = connect.CodeAlreadyExists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		code = connect.CodePermissionDenied
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENAMETOOLONG),
		errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.EXDEV), errors.Is(err, errSpecial),
		errors.Is(err, errManyNames):
		code = connect.CodeInvalidArgument
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		code = connect.CodeResourceExhausted
	}
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	return connect.NewError(code, fmt.Errorf("%s %q: %w", doing, path, err))
}

// validUTF8 makes a file's name, which may be any bytes, valid in a message.
func validUTF8(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

func entryOf(path string) (*filesystemv1.EntryInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	e := &filesystemv1.EntryInfo{
		Name: validUTF8(filepath.Base(path)), Path: validUTF8(path), Size: info.Size(), ModifiedTime: timestamppb.New(info.ModTime()),
		Mode: uint32(info.Mode().Perm()), Permissions: info.Mode().String(), Type: filesystemv1.FileType_FILE_TYPE_FILE,
	}
	switch {
	case info.IsDir():
		e.Type = filesystemv1.FileType_FILE_TYPE_DIRECTORY
	case info.Mode()&fs.ModeSymlink != 0:
		e.Type = filesystemv1.FileType_FILE_TYPE_SYMLINK
		if target, err := os.Readlink(path); err == nil {
			e.SymlinkTarget = new(validUTF8(target))
			// The type of a link is that of its target.
			if to, err := os.Stat(path); err == nil {
				e.Type = filesystemv1.FileType_FILE_TYPE_FILE
				if to.IsDir() {
					e.Type = filesystemv1.FileType_FILE_TYPE_DIRECTORY
				}
			}
		}
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		uid, gid := strconv.FormatUint(uint64(sys.Uid), 10), strconv.FormatUint(uint64(sys.Gid), 10)
		e.Owner, e.Group = uid, gid
		if u, err := user.LookupId(uid); err == nil {
			e.Owner = validUTF8(u.Username)
		}
		if g, err := user.LookupGroupId(gid); err == nil {
			e.Group = validUTF8(g.Name)
		}
	}
	return e, nil
}

func (d *Daemon) stat(_ context.Context, q *connect.Request[filesystemv1.StatRequest]) (*connect.Response[filesystemv1.StatResponse],
	error) {
	_, path, err := d.place(q, q.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	entry, err := entryOf(path)
	if err != nil {
		return nil, failed("reading", path, err)
	}
	return connect.NewResponse(&filesystemv1.StatResponse{Entry: entry}), nil
}

// place returns a request's account and the absolute path.
func (d *Daemon) place(q connect.AnyRequest, path string) (account, string, error) {
	return d.locate("", q.Header(), path)
}

func (d *Daemon) makeDir(_ context.Context, q *connect.Request[filesystemv1.MakeDirRequest]) (
	*connect.Response[filesystemv1.MakeDirResponse], error,
) {
	a, path, err := d.place(q, q.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, failed("creating folder", path, fs.ErrExist)
	}
	if err := makeFolders(a, path); err != nil {
		return nil, failed("creating folder", path, err)
	}
	entry, err := entryOf(path)
	if err != nil {
		return nil, failed("reading", path, err)
	}
	return connect.NewResponse(&filesystemv1.MakeDirResponse{Entry: entry}), nil
}

// makeFolders creates the missing folders of a path, for an account.
func makeFolders(a account, path string) error {
	var missing []string
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err == nil {
			if !info.IsDir() {
				return &fs.PathError{Op: "mkdir", Path: at, Err: syscall.ENOTDIR}
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, at)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // a tenant's folder
			return err
		}
		a.give(missing[i])
	}
	return nil
}

func (d *Daemon) move(ctx context.Context, q *connect.Request[filesystemv1.MoveRequest]) (*connect.Response[filesystemv1.MoveResponse],
	error) {
	a, from, err := d.place(q, q.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	_, to, err := d.place(q, q.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(from); err != nil {
		return nil, failed("moving", from, err)
	}
	if err := makeFolders(a, filepath.Dir(to)); err != nil {
		return nil, failed("moving to", to, err)
	}
	err = os.Rename(from, to)
	if errors.Is(err, syscall.EXDEV) {
		err = moveAcross(ctx, from, to)
	}
	if err != nil {
		return nil, failed("moving to", to, err)
	}
	entry, err := entryOf(to)
	if err != nil {
		return nil, failed("reading", to, err)
	}
	return connect.NewResponse(&filesystemv1.MoveResponse{Entry: entry}), nil
}

func (d *Daemon) listDir(ctx context.Context, q *connect.Request[filesystemv1.ListDirRequest]) (
	*connect.Response[filesystemv1.ListDirResponse], error,
) {
	_, root, err := d.place(q, q.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(root)
	if err != nil {
		return nil, failed("listing", root, err)
	}
	if !info.IsDir() {
		return nil, failed("listing", root, syscall.ENOTDIR)
	}
	depth := max(int(q.Msg.GetDepth()), 1)
	out := &filesystemv1.ListDirResponse{}
	// The trailing slash makes a link to a folder stand for that folder.
	err = filepath.WalkDir(root+string(filepath.Separator), func(path string, entry fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case rel == ".":
			return err
		case err != nil:
			return nil //nolint:nilerr // a folder that cannot be read, or is gone, is listed without its entries
		case len(out.GetEntries()) >= maxEntries:
			return connect.NewError(connect.CodeOutOfRange, fmt.Errorf("%q has more than %d entries", root, maxEntries))
		}
		if e, err := entryOf(filepath.Join(root, rel)); err == nil {
			out.Entries = append(out.Entries, e)
		}
		if entry.IsDir() && strings.Count(rel, string(filepath.Separator))+1 >= depth {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		if connect.CodeOf(err) == connect.CodeOutOfRange {
			return nil, err
		}
		return nil, failed("listing", root, err)
	}
	return connect.NewResponse(out), nil
}

func (d *Daemon) removeEntry(_ context.Context, q *connect.Request[filesystemv1.RemoveRequest]) (
	*connect.Response[filesystemv1.RemoveResponse], error,
) {
	_, path, err := d.place(q, q.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	// A missing path is not an error, as in E2B's daemon.
	if err := os.RemoveAll(path); err != nil {
		return nil, failed("removing", path, err)
	}
	return connect.NewResponse(&filesystemv1.RemoveResponse{}), nil
}

func removeAll(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return failed("removing", path, err)
	}
	if err := os.RemoveAll(path); err != nil {
		return failed("removing", path, err)
	}
	return nil
}
