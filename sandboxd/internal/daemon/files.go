// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"compress/gzip"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
)

const maxParts = 1024 // files in one upload

// signed reports whether a request to /files has a valid signature in place of the token.
func (d *Daemon) signed(r *http.Request, token string) bool {
	q := r.URL.Query()
	if r.URL.Path != "/files" || q.Get("signature") == "" {
		return false
	}
	operation := map[string]string{http.MethodGet: "read", http.MethodPost: "write"}[r.Method]
	if operation == "" {
		return false
	}
	text := fmt.Sprintf("%s:%s:%s:%s", q.Get("path"), operation, q.Get("username"), token)
	if expiry := q.Get("signature_expiration"); expiry != "" {
		at, err := strconv.ParseInt(expiry, 10, 64)
		if err != nil || time.Now().Unix() > at {
			return false
		}
		text += ":" + expiry
	}
	sum := sha256.Sum256([]byte(text))
	want := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	return subtle.ConstantTimeCompare([]byte(q.Get("signature")), []byte(want)) == 1
}

// target returns the account of a request to /files, and the absolute path.
func (d *Daemon) target(r *http.Request, path string) (account, string, error) {
	return d.locate(r.URL.Query().Get("username"), r.Header, path)
}

func refuseError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch connect.CodeOf(err) {
	case connect.CodeNotFound:
		status = http.StatusNotFound
	case connect.CodeInvalidArgument, connect.CodeAlreadyExists:
		status = http.StatusBadRequest
	case connect.CodePermissionDenied:
		status = http.StatusForbidden
	case connect.CodeUnauthenticated:
		status = http.StatusUnauthorized
	case connect.CodeResourceExhausted:
		status = http.StatusInsufficientStorage
	}
	var known *connect.Error
	if errors.As(err, &known) {
		err = errors.New(known.Message())
	}
	refuse(w, status, err)
}

// download sends a file, or the requested ranges of it.
func (d *Daemon) download(w http.ResponseWriter, r *http.Request) {
	_, path, err := d.target(r, r.URL.Query().Get("path"))
	if err != nil {
		refuseError(w, err)
		return
	}
	// Without O_NONBLOCK, a pipe without a writer would block.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		refuseError(w, failed("reading", path, err))
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		refuseError(w, failed("reading", path, err))
		return
	}
	if !info.Mode().IsRegular() {
		refuseError(w, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %q is not a regular file", path)))
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "inline; filename*=utf-8''"+url.PathEscape(filepath.Base(path)))
	http.ServeContent(w, r, "", info.ModTime(), file)
}

type written struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// upload writes one file from the body, or several from a form.
func (d *Daemon) upload(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	named := r.URL.Query().Get("path")
	var out []written
	if err := decode(r); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	if kind != "multipart/form-data" {
		one, err := d.write(r, named, r.Body)
		if err == nil {
			err = setMode(w, r, one.Path)
		}
		if err != nil {
			refuseError(w, err)
			return
		}
		reply(w, append(out, one))
		return
	}
	form, err := r.MultipartReader()
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("reading the form: %w", err))
		return
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			reply(w, out)
			return
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, fmt.Errorf("reading the form: %w", err))
			return
		}
		if part.FormName() != "file" {
			continue
		}
		if len(out) == maxParts {
			refuse(w, http.StatusBadRequest, fmt.Errorf("the form has more than %d files", maxParts))
			return
		}
		path := named
		if path == "" {
			// Part.FileName would strip the folders.
			_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			path = params["filename"]
		}
		one, err := d.write(r, path, part)
		if err != nil {
			refuseError(w, err)
			return
		}
		out = append(out, one)
	}
}

// decode replaces a compressed body by its content.
func decode(r *http.Request) error {
	switch encoding := r.Header.Get("Content-Encoding"); strings.ToLower(encoding) {
	case "", "identity":
		return nil
	case "gzip":
		plain, err := gzip.NewReader(r.Body)
		if err != nil {
			return fmt.Errorf("reading the compressed body: %w", err)
		}
		r.Body = plain
		return nil
	default:
		return fmt.Errorf("Content-Encoding %q is not supported, want gzip or identity", encoding)
	}
}

// modeParameter sets the permissions of a written file, in octal. The response repeats them in modeHeader.
const modeParameter, modeHeader = "mode", "X-Atoll-Mode"

func setMode(w http.ResponseWriter, r *http.Request, path string) error {
	text := r.URL.Query().Get(modeParameter)
	if text == "" {
		return nil
	}
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > 0o777 {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s %q is not valid, want 000 to 0777", modeParameter, text))
	}
	if err := os.Chmod(path, os.FileMode(mode)); err != nil {
		return failed("setting the permissions of", path, err)
	}
	w.Header().Set(modeHeader, text)
	return nil
}

// write streams a body to a file, and creates missing folders.
func (d *Daemon) write(r *http.Request, path string, body io.Reader) (written, error) {
	a, path, err := d.target(r, path)
	if err != nil {
		return written{}, err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return written{}, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %q is not a regular file", path))
	}
	if err := makeFolders(a, filepath.Dir(path)); err != nil {
		return written{}, failed("writing", path, err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o644) //nolint:gosec // a tenant's file
	if err != nil {
		return written{}, failed("writing", path, err)
	}
	_, err = io.Copy(file, body)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return written{}, failed("writing", path, err)
	}
	a.give(path)
	return written{Name: filepath.Base(path), Path: path, Type: "file"}, nil
}

func (d *Daemon) remove(w http.ResponseWriter, r *http.Request) {
	_, path, err := d.target(r, r.URL.Query().Get("path"))
	if err == nil {
		err = removeAll(path)
	}
	if err != nil {
		refuseError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
