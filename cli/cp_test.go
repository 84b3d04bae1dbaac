// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/reach"
)

const someSandbox = "01j9zq3p3k5m8x7c2v4b6n8d0f-east"

// serveFile serves one file of every sandbox, whose content breaks off as long as broken says so.
func serveFile(t *testing.T, content string, broken *atomic.Bool) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/files:stat") {
			_, _ = w.Write([]byte(`{"type": "FILE"}`))
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		if broken.Load() {
			_, _ = w.Write([]byte(content[:2]))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte(content))
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// TestAFailingCopyLeavesWhatWasThere: a file, a link to a file, a link to nothing, or nothing. One that succeeds keeps mode and link.
func TestAFailingCopyLeavesWhatWasThere(t *testing.T) {
	var broken atomic.Bool
	address := serveFile(t, "after", &broken)
	for name, tc := range map[string]struct {
		set   func(dir string) error // makes dir/file
		names string                 // of what is in dir after a failing copy
		after string                 // the same after one that succeeds
	}{
		"a file": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), []byte("before"), 0o640) }, "file", "file"},
		"a link": {func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "it"), []byte("before"), 0o640); err != nil {
				return err
			}
			return os.Symlink("it", filepath.Join(dir, "file"))
		}, "file it", "file it"},
		"a link to nothing": {func(dir string) error { return os.Symlink("it", filepath.Join(dir, "file")) }, "file it", "file it"},
		"nothing":           {func(string) error { return nil }, "", "file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, tc.set(dir))
			file := filepath.Join(dir, "file")
			before, _ := os.ReadFile(file)
			was, _ := os.Stat(file)
			link, _ := os.Readlink(file)
			broken.Store(true)
			if _, err := atollctl(t, "cp", "--server", address, someSandbox+":/data", file); err == nil {
				t.Error("a copy that breaks off succeeds")
			}
			if got, _ := os.ReadFile(file); len(before) > 0 && string(got) != string(before) {
				t.Errorf("it has %q, want %q", got, before)
			}
			if got := namesIn(t, dir); got != tc.names {
				t.Errorf("there are %q, want %q", got, tc.names)
			}
			broken.Store(false)
			succeed(t, "cp", "--server", address, someSandbox+":/data", file)
			if got, err := os.ReadFile(file); err != nil || string(got) != "after" {
				t.Errorf("a copy has %q: %v", got, err)
			}
			if got := namesIn(t, dir); got != tc.after {
				t.Errorf("there are %q, want %q", got, tc.after)
			}
			if got, _ := os.Readlink(file); got != link {
				t.Errorf("the link leads to %q, want %q", got, link)
			}
			info, err := os.Stat(file)
			if must.Succeed(t, err); was != nil && info.Mode() != was.Mode() {
				t.Errorf("the mode is %s, want %s", info.Mode(), was.Mode())
			}
		})
	}
}

// namesIn lists a folder.
func namesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Succeed(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

// A command in a sandbox may say any amount. The error of a copy has the first of it.
func TestACopySaysTheFirstOfWhatItsCommandSays(t *testing.T) {
	const status = `{"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [{"reason": "ExitCode", "message": "1"}]}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/exec") {
			w.WriteHeader(http.StatusNotImplemented) // there is no daemon
			return
		}
		conn, err := (&websocket.Upgrader{Subprotocols: []string{reach.ExecProtocol}}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for range 10 {
			_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{reach.ChannelStderr}, strings.Repeat("x", maxSaid-1)...))
		}
		_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{reach.ChannelStatus}, status...))
	}))
	t.Cleanup(server.Close)
	_, err := atollctl(t, "cp", "--server", server.Listener.Addr().String(), someSandbox+":/data", "-")
	if want := "cat in the sandbox ended with 1: " + strings.Repeat("x", maxSaid-len("…")) + "…"; err == nil || err.Error() != want {
		t.Errorf("the error is %v", err)
	}
	var kept firstBytes
	for range 3 {
		if n, err := kept.Write(make([]byte, maxSaid)); n != maxSaid || err != nil {
			t.Errorf("it takes %d bytes: %v", n, err)
		}
	}
	if len(kept.kept) != maxSaid+1 {
		t.Errorf("it keeps %d bytes", len(kept.kept))
	}
}
