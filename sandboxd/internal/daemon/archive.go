// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"archive/tar"
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"unicode/utf8"

	"connectrpc.com/connect"
)

// The formats of archives.
const (
	formatTar = "tar"
	formatZip = "zip"
)

const (
	maxArchived = 100_000   // files of an unpacked archive
	maxNames    = 1_000_000 // of a packed folder; they are kept for sorting
)

var errManyNames = fmt.Errorf("the folder has more than %d entries", maxNames)

func formatOf(r *http.Request) (string, error) {
	switch format := r.URL.Query().Get("format"); format {
	case "", formatTar:
		return formatTar, nil
	case formatZip:
		return formatZip, nil
	default:
		return "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("format %.32q is not valid, want tar or zip", format))
	}
}

// openFolder opens a folder as a root, so that nothing outside of it can be reached, not even through a link.
func openFolder(path string) (*os.Root, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return nil, failed("reading", path, err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, failed("reading", path, err)
	}
	return root, nil
}

// packer writes the files of an archive. content must be as long as info says.
type packer interface {
	add(name string, info fs.FileInfo, link string, content io.Reader) error
	Close() error
}

// pack streams a folder as an archive. It skips entries that are neither files, folders nor links.
func (d *Daemon) pack(w http.ResponseWriter, r *http.Request) {
	_, path, err := d.target(r, r.URL.Query().Get("path"))
	if err != nil {
		refuseError(w, err)
		return
	}
	format, err := formatOf(r)
	if err != nil {
		refuseError(w, err)
		return
	}
	root, err := openFolder(path)
	if err != nil {
		refuseError(w, err)
		return
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	out := &begun{ResponseWriter: w}
	var to packer
	if format == formatZip {
		w.Header().Set("Content-Type", "application/zip")
		to = &zipPacker{zip.NewWriter(out)}
	} else {
		w.Header().Set("Content-Type", "application/x-tar")
		to = &tarPacker{tar.NewWriter(out)}
	}
	err = packFolder(r.Context(), root, to, ".")
	if err != nil && !out.written {
		refuseError(w, err)
		return
	}
	if err == nil {
		err = to.Close()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // so that the caller does not mistake the part for the whole
	}
}

// begun is a response that records whether any of its body was written.
type begun struct {
	http.ResponseWriter
	written bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.written = true
	return b.ResponseWriter.Write(p)
}

// packFolder adds the entries of a folder, sorted by name. It skips entries that vanish meanwhile. Names may be any bytes, so it cannot use
// package fs, whose names are UTF-8.
func packFolder(ctx context.Context, root *os.Root, to packer, folder string) error {
	names, err := namesIn(root, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failed("reading", filepath.Join(root.Name(), folder), err)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		name = filepath.Join(folder, name)
		info, err := root.Lstat(name)
		if err == nil {
			err = packOne(root, to, name, info)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return failed("reading", filepath.Join(root.Name(), name), err)
		case info.IsDir():
			if err := packFolder(ctx, root, to, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func namesIn(root *os.Root, folder string) ([]string, error) {
	f, err := root.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxNames + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(names) > maxNames:
		return nil, errManyNames
	}
	slices.Sort(names)
	return names, nil
}

func packOne(root *os.Root, to packer, name string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return to.add(name+"/", info, "", nil)
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := root.Readlink(name)
		if err != nil {
			return err
		}
		return to.add(name, info, link, nil)
	case !info.Mode().IsRegular():
		return nil
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // may be a pipe by now
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	return to.add(name, info, "", io.LimitReader(file, info.Size()))
}

type tarPacker struct{ *tar.Writer }

func (p *tarPacker) add(name string, info fs.FileInfo, link string, content io.Reader) error {
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name = name
	if !utf8.ValidString(name) || !utf8.ValidString(link) {
		header.Format = tar.FormatGNU // names in PAX must be UTF-8
	}
	if err := p.WriteHeader(header); err != nil || content == nil {
		return err
	}
	_, err = io.Copy(p, content) // if the file has shrunk, the next header fails
	return err
}

type zipPacker struct{ *zip.Writer }

func (p *zipPacker) add(name string, info fs.FileInfo, link string, content io.Reader) error {
	header, err := zip.FileInfoHeader(info)
	if err != nil {
		return err
	}
	header.Name = name
	if content != nil {
		header.Method = zip.Deflate
	}
	to, err := p.CreateHeader(header)
	if err != nil {
		return err
	}
	if link != "" {
		_, err = io.WriteString(to, link)
	}
	if err == nil && content != nil {
		_, err = io.Copy(to, content)
	}
	return err
}

type unpacked struct {
	Path  string `json:"path"`
	Files int    `json:"files"`
}

// unpack writes the files of an archive below a folder, which is created if it is missing.
func (d *Daemon) unpack(w http.ResponseWriter, r *http.Request) {
	a, path, err := d.target(r, r.URL.Query().Get("path"))
	if err != nil {
		refuseError(w, err)
		return
	}
	format, err := formatOf(r)
	if err != nil {
		refuseError(w, err)
		return
	}
	if err := makeFolders(a, path); err != nil {
		refuseError(w, failed("creating folder", path, err))
		return
	}
	root, err := openFolder(path)
	if err != nil {
		refuseError(w, err)
		return
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	u := &unpacker{root: root, account: a}
	if format == formatZip {
		err = u.zip(r.Body)
	} else {
		err = u.tar(r.Body)
	}
	if err != nil {
		refuseError(w, err)
		return
	}
	reply(w, unpacked{Path: path, Files: u.count})
}
