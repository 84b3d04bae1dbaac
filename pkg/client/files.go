// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

func at(path string) url.Values { return url.Values{"path": {path}} }

// Open returns the content of a file, which the caller closes.
func (s *Sandbox) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	response, err := s.client.send(ctx, http.MethodGet, s.path("/files"), at(path), nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// ReadFile returns the content of a file. It fails if the file has more than most bytes.
func (s *Sandbox) ReadFile(ctx context.Context, path string, most int64) ([]byte, error) {
	file, err := s.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", path, err)
	case int64(len(content)) > most:
		return nil, fmt.Errorf("reading %s: it has more than %d bytes", path, most)
	}
	return content, nil
}

// Write writes a file, and creates the folders that it needs.
func (s *Sandbox) Write(ctx context.Context, path string, content io.Reader) error {
	response, err := s.client.send(ctx, http.MethodPut, s.path("/files"), at(path), content, "Content-Type", "application/octet-stream")
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// WriteFile is Write for content in memory.
func (s *Sandbox) WriteFile(ctx context.Context, path string, content []byte) error {
	return s.Write(ctx, path, bytes.NewReader(content))
}

// List returns the content of a folder down to a depth; 1 is only the folder itself.
func (s *Sandbox) List(ctx context.Context, path string, depth int) ([]sandboxv1.File, error) {
	query := at(path)
	query.Set("depth", strconv.Itoa(depth))
	var out sandboxv1.FileList
	err := s.client.call(ctx, http.MethodGet, s.path("/files:list"), query, nil, &out)
	return out.Files, err
}

// Stat describes a file or a folder.
func (s *Sandbox) Stat(ctx context.Context, path string) (*sandboxv1.File, error) {
	out := &sandboxv1.File{}
	return out, s.client.call(ctx, http.MethodGet, s.path("/files:stat"), at(path), nil, out)
}

// MakeFolder creates a folder and its missing parents.
func (s *Sandbox) MakeFolder(ctx context.Context, path string) error {
	return s.client.call(ctx, http.MethodPost, s.path("/files:mkdir"), nil, sandboxv1.MakeFolder{Path: path}, nil)
}

// Move moves a file or a folder.
func (s *Sandbox) Move(ctx context.Context, from, to string) error {
	return s.client.call(ctx, http.MethodPost, s.path("/files:move"), nil, sandboxv1.MoveFile{From: from, To: to}, nil)
}

// Remove removes a file, or a folder with everything in it.
func (s *Sandbox) Remove(ctx context.Context, path string) error {
	return s.client.call(ctx, http.MethodDelete, s.path("/files"), at(path), nil, nil)
}

// Pack returns the content of a folder as a tar stream, which the caller must close. If the stream breaks off, reading it fails.
func (s *Sandbox) Pack(ctx context.Context, path string) (io.ReadCloser, error) {
	response, err := s.client.send(ctx, http.MethodGet, s.path("/files:archive"), at(path), nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// Unpack writes the files of a tar stream into a folder, which it creates if necessary. It returns the number of files.
func (s *Sandbox) Unpack(ctx context.Context, path string, archive io.Reader) (int, error) {
	response, err := s.client.send(ctx, http.MethodPut, s.path("/files:archive"), at(path), archive, "Content-Type",
		"application/x-tar", "Expect", "100-continue") // a daemon without archives refuses before the body is sent
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var out sandboxv1.Unpacked
	if err := json.NewDecoder(io.LimitReader(response.Body, maxResponse)).Decode(&out); err != nil {
		return 0, fmt.Errorf("reading the response: %w", err)
	}
	return out.Files, nil
}
