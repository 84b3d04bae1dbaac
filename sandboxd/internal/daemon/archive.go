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
	maxArchived = 100_000   // files of an archive that is unpacked
	maxNames    = 1_000_000 // of a folder that is packed, which are kept to be sorted
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

// openFolder opens a folder such that nothing beyond it is reached, also not by way of a link.
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

// packer takes the files of an archive. A file's content is of the size that info has.
type packer interface {
	add(name string, info fs.FileInfo, link string, content io.Reader) error
	Close() error
}

// pack streams what a folder has. What is neither file, folder nor link is left out.
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
	defer func() { _ = root.Close() }() // it was read, or written by files of their own
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
		panic(http.ErrAbortHandler) // so that the caller does not take the part for the whole
	}
}

// begun is a response, and whether any of its body was written.
type begun struct {
	http.ResponseWriter
	written bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.written = true
	return b.ResponseWriter.Write(p)
}

// packFolder adds what a folder has, in the order of names. What is gone meanwhile is left out. Names are any bytes, so that package fs,
// whose names are UTF-8, does not serve.
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
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
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
		header.Format = tar.FormatGNU // PAX has names in UTF-8 alone
	}
	if err := p.WriteHeader(header); err != nil || content == nil {
		return err
	}
	_, err = io.Copy(p, content) // one that has become shorter fails at the next header
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

// unpack writes the files of an archive below a folder, which is made if it is missing.
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
	defer func() { _ = root.Close() }() // it was read, or written by files of their own
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
