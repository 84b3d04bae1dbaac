// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"navix.sh/atoll/api/envd"
	filesystemv1 "navix.sh/atoll/api/envd/filesystem"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/sandboxd"
)

const maxDepth = 32

var fileTypes = map[filesystemv1.FileType]string{
	filesystemv1.FileType_FILE_TYPE_DIRECTORY: sandboxv1.FileTypeDirectory, filesystemv1.FileType_FILE_TYPE_SYMLINK: sandboxv1.FileTypeSymlink,
}

func fileOf(e *filesystemv1.EntryInfo) sandboxv1.File {
	f := sandboxv1.File{
		Name: e.GetName(), Path: e.GetPath(), Type: cmp.Or(fileTypes[e.GetType()], sandboxv1.FileTypeFile), Size: e.GetSize(),
		Mode: fmt.Sprintf("%04o", e.GetMode()&0o7777), Owner: e.GetOwner(), Group: e.GetGroup(), LinkTarget: e.GetSymlinkTarget(),
	}
	if e.GetModifiedTime() != nil {
		at := e.GetModifiedTime().AsTime()
		f.ModifiedAt = &at
	}
	return f
}

// file sends the daemon a request for one file.
func (i *inside) file(method string, body io.Reader) (*http.Response, error) {
	i.query.path("path", i.query.values.Get("path"))
	if err := i.query.known("path user"); err != nil {
		return nil, err
	}
	to := i.Base + "/files?" + url.Values{"path": {i.query.values.Get("path")}}.Encode()
	request, err := http.NewRequestWithContext(i.context, method, to, body)
	if err != nil {
		return nil, fmt.Errorf("asking the daemon: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/octet-stream")
	}
	for _, name := range []string{"Range", "If-Range", "If-Modified-Since"} {
		if value := i.request.Header.Get(name); value != "" && method == http.MethodGet {
			request.Header.Set(name, value)
		}
	}
	return i.Do(request, i.now)
}

// download streams a file, or ranges of it.
func (i *inside) download() error {
	response, err := i.file(http.MethodGet, nil)
	if refused := rangeOf(err); refused != nil {
		i.w.Header().Set("Content-Range", refused.Header.Get("Content-Range"))
		problem.InvalidField("Range", i.request.Header.Get("Range"), "a range of the file").
			WriteStatus(i.w, http.StatusRequestedRangeNotSatisfiable)
		return nil
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	header := i.w.Header()
	for _, name := range []string{"Content-Length", "Content-Range", "Accept-Ranges", "Last-Modified"} {
		if value := response.Header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	kind := "application/octet-stream" // a page would have the origin of the API
	if response.StatusCode == http.StatusPartialContent && response.Header.Get("Content-Range") == "" {
		kind = response.Header.Get("Content-Type") // several ranges
	}
	header.Set("Content-Type", kind)
	header.Set("Content-Disposition", "attachment")
	header.Set("Content-Security-Policy", sandboxed)
	i.w.WriteHeader(response.StatusCode)
	if _, err := io.Copy(i.w, response.Body); err != nil {
		panic(http.ErrAbortHandler) // so that the caller does not take a part for the whole
	}
	return nil
}

func rangeOf(err error) *sandboxd.StatusError {
	var refused *sandboxd.StatusError
	if errors.As(err, &refused) && refused.Status == http.StatusRequestedRangeNotSatisfiable {
		return refused
	}
	return nil
}

// upload streams a body to a file.
func (i *inside) upload() error {
	body := &counted{from: i.request.Body}
	response, err := i.file(http.MethodPut, body)
	switch {
	case body.err != nil:
		return problem.New(problem.Invalid, "the request's body broke off after %d bytes, which the file has", body.bytes)
	case err != nil:
		return err
	}
	_ = response.Body.Close()
	return i.reply(sandboxv1.Written{Path: i.query.values.Get("path"), Size: body.bytes})
}

// counted is a body that counts the bytes that were read.
type counted struct {
	from  io.Reader
	bytes int64
	err   error // any error except io.EOF
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

func (i *inside) remove() error {
	response, err := i.file(http.MethodDelete, nil)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	i.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (i *inside) stat() error {
	path := i.query.values.Get("path")
	i.query.path("path", path)
	if err := i.query.known("path user"); err != nil {
		return err
	}
	out, err := callDaemon[filesystemv1.StatResponse](i.context, i, envd.FilesystemStat, &filesystemv1.StatRequest{Path: path})
	if err != nil {
		return err
	}
	return i.reply(fileOf(out.GetEntry()))
}

func (i *inside) list() error {
	path, depth := i.query.values.Get("path"), uint64(1)
	i.query.path("path", path)
	if text := i.query.values.Get("depth"); text != "" {
		var err error
		if depth, err = strconv.ParseUint(text, 10, 32); err != nil || depth < 1 || depth > maxDepth {
			i.query.fault("depth", text, fmt.Sprintf("1 to %d", maxDepth))
		}
	}
	if err := i.query.known("path user depth"); err != nil {
		return err
	}
	out, err := callDaemon[filesystemv1.ListDirResponse](i.context, i, envd.FilesystemListDir,
		&filesystemv1.ListDirRequest{Path: path, Depth: uint32(depth)})
	if err != nil {
		return err
	}
	files := sandboxv1.FileList{Files: make([]sandboxv1.File, len(out.GetEntries()))}
	for n, entry := range out.GetEntries() {
		files.Files[n] = fileOf(entry)
	}
	return i.reply(files)
}

func (i *inside) makeDir() error {
	var in sandboxv1.MakeFolder
	if err := i.read(&in); err != nil {
		return err
	}
	i.query.path("path", in.Path)
	if err := i.query.known("user"); err != nil {
		return err
	}
	out, err := callDaemon[filesystemv1.MakeDirResponse](i.context, i, envd.FilesystemMakeDir, &filesystemv1.MakeDirRequest{Path: in.Path})
	if err != nil {
		return err
	}
	return i.reply(fileOf(out.GetEntry()))
}

func (i *inside) move() error {
	var in sandboxv1.MoveFile
	if err := i.read(&in); err != nil {
		return err
	}
	i.query.path("from", in.From)
	i.query.path("to", in.To)
	if err := i.query.known("user"); err != nil {
		return err
	}
	out, err := callDaemon[filesystemv1.MoveResponse](i.context, i, envd.FilesystemMove,
		&filesystemv1.MoveRequest{Source: in.From, Destination: in.To})
	if err != nil {
		return err
	}
	return i.reply(fileOf(out.GetEntry()))
}
