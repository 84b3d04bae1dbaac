// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http"
	"net/url"
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
