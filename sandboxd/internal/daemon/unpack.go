// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"archive/tar"
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"connectrpc.com/connect"
)

const maxLink = 4096

// unpacker writes files below a folder, and nowhere else: it refuses names that lead outside, and follows no link outside.
type unpacker struct {
	root    *os.Root
	account account
	count   int
}

// packed is one file of an archive.
type packed struct {
	name    string
	mode    fs.FileMode
	link    string // the target of a symbolic link
	hard    string // the target of a hard link, unpacked before
	content io.Reader
}

func (u *unpacker) tar(from io.Reader) error {
	reader := tar.NewReader(from)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, from) // the padding; its sender fails if it is not read
			return refusedArchive(err)
		}
		if err != nil {
			return refusedArchive(err)
		}
		one := packed{name: header.Name, mode: fs.FileMode(header.Mode).Perm(), content: reader} //nolint:gosec // its low bits
		switch header.Typeflag {
		case tar.TypeXGlobalHeader: // describes all files, such as git's commit; ignored
			continue
		case tar.TypeReg, tar.TypeGNUSparse:
		case tar.TypeDir:
			one.mode |= fs.ModeDir
		case tar.TypeSymlink:
			one.mode, one.link = fs.ModeSymlink, header.Linkname
		case tar.TypeLink:
			one.hard = header.Linkname
		default:
			return invalidEntry(header.Name, "it is neither a file, a folder nor a link")
		}
		if err := u.write(one); err != nil {
			return err
		}
	}
}

// zip stores the archive in an unlinked file first, because its list of files is at its end.
func (u *unpacker) zip(from io.Reader) error {
	file, err := os.CreateTemp("", "atoll-zip-*")
	if err != nil {
		return failed("keeping the archive in", os.TempDir(), err)
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil {
		return failed("keeping the archive in", os.TempDir(), err)
	}
	size, err := io.Copy(file, from)
	if err != nil {
		return failed("keeping the archive in", os.TempDir(), err)
	}
	reader, err := zip.NewReader(file, size)
	if err != nil {
		return refusedArchive(err)
	}
	for _, entry := range reader.File {
		if err := u.entry(entry); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) entry(entry *zip.File) error {
	content, err := entry.Open()
	if err != nil {
		return refusedArchive(err)
	}
	defer content.Close()
	one := packed{name: entry.Name, mode: entry.Mode(), content: content}
	if one.mode&fs.ModeSymlink != 0 {
		link, err := io.ReadAll(io.LimitReader(content, maxLink))
		if err != nil {
			return refusedArchive(err)
		}
		one.link = string(link)
	}
	return u.write(one)
}

func (u *unpacker) write(p packed) error {
	if u.count++; u.count > maxArchived {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the archive has more than %d files", maxArchived))
	}
	name := filepath.FromSlash(path.Clean(p.name))
	if !filepath.IsLocal(name) {
		return invalidEntry(p.name, "the name leads out of the folder")
	}
	if name == "." {
		return nil
	}
	if err := u.make(name, p); err != nil {
		return refusedEntry(name, err)
	}
	return nil
}

func (u *unpacker) make(name string, p packed) error {
	if p.mode.IsDir() {
		return u.folders(name)
	}
	if err := u.folders(filepath.Dir(name)); err != nil {
		return err
	}
	// Replace an existing entry instead of following it.
	if info, err := u.root.Lstat(name); err == nil && !info.Mode().IsRegular() || err == nil && p.link+p.hard != "" {
		if err := u.root.Remove(name); err != nil {
			return err
		}
	}
	switch {
	case p.mode&fs.ModeSymlink != 0:
		if err := u.root.Symlink(p.link, name); err != nil {
			return err
		}
	case p.hard != "":
		to := filepath.FromSlash(path.Clean(p.hard))
		if !filepath.IsLocal(to) {
			return errOutside
		}
		return u.root.Link(to, name)
	case p.mode.IsRegular():
		if err := u.file(name, p); err != nil {
			return err
		}
	default:
		return errSpecial
	}
	u.give(name)
	return nil
}

func (u *unpacker) file(name string, p packed) error {
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, p.content)
	if err == nil {
		err = file.Chmod(p.mode.Perm())
	}
	return errors.Join(err, file.Close())
}

// folders creates a folder and its missing parents.
func (u *unpacker) folders(name string) error {
	if name == "." {
		return nil
	}
	info, err := u.root.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return syscall.ENOTDIR
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := u.folders(filepath.Dir(name)); err != nil {
		return err
	}
	if err := u.root.Mkdir(name, 0o755); err != nil {
		return err
	}
	u.give(name)
	return nil
}

// give makes the account the owner of a new entry.
func (u *unpacker) give(name string) {
	if u.account.other {
		_ = u.root.Lchown(name, int(u.account.uid), int(u.account.gid)) // some filesystems have no owners
	}
}

var (
	errOutside = errors.New("the link leads out of the folder")
	errSpecial = errors.New("it is neither a file, a folder nor a link")
)

func invalidEntry(name, why string) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the archive's %.160q: %s", name, why))
}

// refusedEntry returns the error for a file that was not written.
func refusedEntry(name string, err error) error {
	refused := failed("unpacking", name, err)
	if connect.CodeOf(refused) == connect.CodeInternal || connect.CodeOf(refused) == connect.CodeAlreadyExists {
		return invalidEntry(name, err.Error())
	}
	return refused
}

// refusedArchive returns the error for an archive that cannot be read.
func refusedArchive(err error) error {
	if err == nil {
		return nil
	}
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("reading the archive: %w", err))
}
