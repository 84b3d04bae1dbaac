// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"compress/gzip"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
)

func TestALargeFileGoesUpAndDown(t *testing.T) {
	s := opened(t)
	at := "/files?path=" + url.QueryEscape(filepath.Join(t.TempDir(), "big"))
	sent := strings.Repeat("0123456789abcdef", 1<<20) // 16 MiB
	if status, text := s.http(http.MethodPost, at, testToken, sent); status != http.StatusOK {
		t.Fatalf("upload: %d %s", status, text)
	}
	if status, text := s.http(http.MethodGet, at, testToken, ""); status != http.StatusOK || text != sent {
		t.Errorf("download: %d, %d bytes", status, len(text))
	}
}

func TestACompressedFileIsWrittenAsWhatItHolds(t *testing.T) {
	s := opened(t)
	path := filepath.Join(t.TempDir(), "f")
	var body bytes.Buffer
	w := gzip.NewWriter(&body)
	_, _ = w.Write([]byte("content"))
	must.Succeed(t, w.Close())
	for encoding, want := range map[string]int{"gzip": http.StatusOK, "br": http.StatusBadRequest} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+"/files?path="+url.QueryEscape(path),
			bytes.NewReader(body.Bytes()))
		must.Succeed(t, err)
		request.Header.Set(TokenHeader, testToken)
		request.Header.Set("Content-Encoding", encoding)
		response, err := s.server.Client().Do(request)
		must.Succeed(t, err)
		if text := must.Read(t, response.Body); response.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", encoding, response.StatusCode, text, want)
		}
		_ = response.Body.Close()
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

// postForm uploads a form with files below a folder, each with its name as its content.
func (s *sandbox) postForm(dir string, names ...string) (status int, text string) {
	s.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for _, name := range names {
		part, err := w.CreateFormFile("file", filepath.Join(dir, name))
		must.Succeed(s.T, err)
		_, _ = part.Write([]byte(name))
	}
	must.Succeed(s.T, w.Close())
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.server.URL+"/files", &form)
	must.Succeed(s.T, err)
	request.Header.Set("Content-Type", w.FormDataContentType())
	request.Header.Set(TokenHeader, testToken)
	response, err := s.server.Client().Do(request)
	must.Succeed(s.T, err)
	defer response.Body.Close()
	return response.StatusCode, string(must.Read(s.T, response.Body))
}

// A form may have as many files as its bound says, and no more.
func TestAFormHasABoundedNumberOfFiles(t *testing.T) {
	s := opened(t)
	dir := t.TempDir()
	for files, want := range map[int]int{maxParts: http.StatusOK, maxParts + 1: http.StatusBadRequest} {
		var names []string
		for i := range files {
			names = append(names, strconv.Itoa(i))
		}
		if status, text := s.postForm(dir, names...); status != want {
			t.Errorf("%d files: %d %.200s, want %d", files, status, text, want)
		}
	}
}

func TestAFileHasThePermissionsThatItsWriterNames(t *testing.T) {
	s := opened(t)
	path := filepath.Join(t.TempDir(), "tool")
	at := "/files?path=" + url.QueryEscape(path) + "&mode="
	for text, want := range map[string]int{
		"0755": http.StatusOK, "600": http.StatusOK, "4755": http.StatusBadRequest, "x": http.StatusBadRequest,
	} {
		if status, said := s.http(http.MethodPut, at+text, testToken, "tool"); status != want {
			t.Errorf("mode %s: %d %s, want %d", text, status, said, want)
		}
	}
	if status, said := s.http(http.MethodPut, at+"0751", testToken, "tool"); status != http.StatusOK {
		t.Fatalf("%d %s", status, said)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o751 {
		t.Errorf("%v, %v", info, err)
	}
}
