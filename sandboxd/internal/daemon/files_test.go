// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
