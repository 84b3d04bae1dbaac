// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
)

// auditLines has four lines, one of which a crash has cut.
//
//go:embed testdata/audit.log
var auditLines string

func runAudit(t *testing.T, in string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := newRoot()
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append([]string{"audit"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestAudit(t *testing.T) {
	dir := t.TempDir()
	plain, packed := filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit-2026.log.gz")
	must.Succeed(t, os.WriteFile(plain, []byte(auditLines), 0o600))
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write([]byte(auditLines))
	must.Succeed(t, err)
	must.Succeed(t, w.Close())
	must.Succeed(t, os.WriteFile(packed, zipped.Bytes(), 0o600))
	const create = "2026-01-02T03:04:05Z  ci   192.0.2.1  create  sandboxes  01-east  east     ok, again"
	for _, tc := range []struct {
		args  []string
		lines int // of events, with their header
		want  string
	}{
		{[]string{}, 4, create},
		{[]string{plain}, 4, "2026-01-02T05:04:05Z  ann�[2K  -"},
		{[]string{plain, packed}, 7, "exec (end)"},
		{[]string{"--verb", "create"}, 2, "ok, again"},
		{[]string{"--who", "red"}, 2, "create"},
		{[]string{"--outcome", "refused"}, 2, "refused, FORBIDDEN"},
		{[]string{"--resource", "sandboxes*"}, 3, "1.5s, 3 bytes in, 4 out"},
		{[]string{"--cluster", "west"}, 2, "drain"},
		{[]string{"-n", "default", "--sandbox", "01-*"}, 2, "create"},
		{[]string{"--since", "2026-01-02T04:00:00Z", "--until", "2026-01-02T05:00:00Z"}, 2, "drain"},
		{[]string{"--since", "1h"}, 0, ""},
		{[]string{"--verb", "create", "-o", "json"}, 1, `"repeat":true`},
		{[]string{"--verb", "create", "-o", "yaml"}, -1, "verb: create"},
	} {
		out, errs, err := runAudit(t, auditLines, tc.args...)
		if n := strings.Count(out, "\n"); err != nil || tc.lines >= 0 && n != tc.lines || !strings.Contains(tidied(out), tidied(tc.want)) {
			t.Errorf("%q: %d lines, want %d with %q: %v\n%s", tc.args, n, tc.lines, tc.want, err, out)
		}
		if !strings.Contains(errs, "no line") {
			t.Errorf("%q does not tell of the cut line: %s", tc.args, errs)
		}
	}
	for _, tc := range [][]string{{"--outcome", "fine"}, {"--since", "soon"}, {"--follow"}, {plain + ".gone"}} {
		if _, _, err := runAudit(t, auditLines, tc...); err == nil || exitCodeOf(err) != 2 {
			t.Errorf("%q: %v, want a usage error", tc, err)
		}
	}
}

// A file that cannot be read, or not to its end, hides nothing of what could be read, and is named.
func TestAuditPrintsAllThatItReads(t *testing.T) {
	dir := t.TempDir()
	whole, cut, gone := filepath.Join(dir, "audit.log"), filepath.Join(dir, "cut.log.gz"), filepath.Join(dir, "gone.log")
	must.Succeed(t, os.WriteFile(whole, []byte(auditLines), 0o600))
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write([]byte(auditLines))
	must.Succeed(t, err)
	must.Succeed(t, w.Flush()) // without its end, as a hub leaves it that is killed meanwhile
	must.Succeed(t, os.WriteFile(cut, zipped.Bytes(), 0o600))
	for _, tc := range []struct {
		files  []string
		events int
		code   exitCode
		names  string
	}{
		{[]string{gone, whole}, 3, exitUsage, gone},
		{[]string{whole, gone}, 3, exitUsage, gone},
		{[]string{cut, whole}, 6, 1, cut},
		{[]string{whole, cut}, 6, 1, cut},
	} {
		for output, header := range map[string]int{"json": 0, "table": 1} {
			out, _, err := runAudit(t, "", append(tc.files, "-o", output)...)
			if err == nil || exitCodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.names) {
				t.Errorf("%q: %v, want exit code %d, and %s named", tc.files, err, tc.code, tc.names)
			}
			if n := strings.Count(out, "\n"); n != tc.events+header {
				t.Errorf("%q: %d lines of %s, want %d events:\n%s", tc.files, n, output, tc.events, out)
			}
		}
	}
}

func tidied(s string) string { return strings.Join(strings.Fields(s), " ") }

// Following a file shows what is added to it, also after it was rotated.
func TestAuditFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	line := func(verb string) []byte {
		return []byte(fmt.Sprintf(`{"schema":1,"time":"2026-01-02T03:04:05Z","stage":"done","who":{},"from":{},"verb":%q,"object":{}}`+"\n",
			verb))
	}
	must.Succeed(t, os.WriteFile(path, line("first"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	read, written := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- command(ctx, written, io.Discard, "audit", path, "--follow", "-o", "json")
		_ = written.Close()
	}()
	next := func(want string) {
		t.Helper()
		buffer := make([]byte, 4096)
		n, err := read.Read(buffer)
		if err != nil || !strings.Contains(string(buffer[:n]), want) {
			t.Fatalf("got %s, %v, want %s", buffer[:n], err, want)
		}
	}
	next("first")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must.Succeed(t, err)
	_, err = f.Write(line("second"))
	must.Succeed(t, err)
	next("second")
	must.Succeed(t, f.Close())
	must.Succeed(t, os.Rename(path, path+".1"))
	must.Succeed(t, os.WriteFile(path, line("third"), 0o600))
	next("third")
	cancel()
	must.Succeed(t, <-ended)
}
