// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// pack writes a file or a folder as a tar stream under another name. It follows a link that is itself the source. It omits anything that is
// not a file, a folder or a link.
func pack(w io.Writer, root, name string) error {
	to := tar.NewWriter(w)
	from, err := filepath.EvalSymlinks(root) // WalkDir does not follow it
	if err == nil {
		err = filepath.WalkDir(from, func(at string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(from, at)
			if err != nil {
				return err
			}
			return packOne(to, at, path.Join(name, filepath.ToSlash(rel)), info)
		})
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("reading %s: %w", root, err)
	}
	return nil
}

func packOne(to *tar.Writer, at, name string, info fs.FileInfo) error {
	target := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		var err error
		if target, err = os.Readlink(at); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name, header.Uid, header.Gid, header.Uname, header.Gname = name, 0, 0, "", ""
	if info.IsDir() {
		header.Name += "/"
	}
	if err := to.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(at)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(to, file)
	return err
}

// unpackInto writes a tar stream into a folder. The sandbox is not trusted: nothing is written outside of the folder, not even through a
// link.
func unpackInto(r io.Reader, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("writing %s: %w", folder, err)
	}
	defer func() { _ = root.Close() }()
	from := tar.NewReader(r)
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			// Read tar's padding: without a reader, tar would fail.
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return fmt.Errorf("reading what the sandbox sends: %w", err)
		}
		if err := unpackOne(root, from, header); err != nil {
			return fmt.Errorf("writing %s: %w", filepath.Join(folder, header.Name), err)
		}
	}
}

func unpackOne(root *os.Root, from io.Reader, header *tar.Header) error {
	name := filepath.FromSlash(path.Clean(header.Name))
	if !filepath.IsLocal(name) {
		return errors.New("the name leads out of the folder")
	}
	mode := fs.FileMode(header.Mode).Perm() //nolint:gosec // its low bits
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeReg:
		if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return err
		}
		file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, from)
		return errors.Join(err, file.Close())
	case tar.TypeSymlink:
		// A program that reads the copy would follow a link that leads out of the folder.
		if filepath.IsAbs(header.Linkname) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), header.Linkname)) {
			return fmt.Errorf("the link leads to %s, out of the folder", strings.ToValidUTF8(header.Linkname, "?"))
		}
		for at := filepath.Dir(name); at != "."; at = filepath.Dir(at) {
			if info, err := root.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
				return errors.New("a link lies behind another link")
			}
		}
		_ = root.Remove(name)
		return root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return linkOne(root, filepath.FromSlash(path.Clean(header.Linkname)), name)
	default:
		return nil
	}
}

// linkOne makes a hard link, as which tar writes the other names of a file. The target was unpacked before.
func linkOne(root *os.Root, target, name string) error {
	if !filepath.IsLocal(target) {
		return errors.New("the link leads out of the folder")
	}
	info, err := root.Lstat(target)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular(): // a symbolic link could lead somewhere else from here
		return fmt.Errorf("it is another name of %q, which is no file", target)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	if target != name {
		_ = root.Remove(name)
	}
	return root.Link(target, name)
}
