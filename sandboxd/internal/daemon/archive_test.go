// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/unprivileged"
)

func archiveAt(path, format string) string {
	return "/archive?" + url.Values{"path": {path}, "format": {format}}.Encode()
}

func TestArchivesGoBothWays(t *testing.T) {
	s := opened(t)
	from := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"a/b/tool": 0o755, "a/data": 0o600, "empty": 0o644} {
		at := filepath.Join(from, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(at), 0o755))
		must.Succeed(t, os.WriteFile(at, []byte(strings.Repeat(name, 1000)), mode))
	}
	must.Succeed(t, os.Symlink("/etc/hostname", filepath.Join(from, "a", "link")))
	must.Succeed(t, syscall.Mkfifo(filepath.Join(from, "pipe"), 0o600)) // reading it would block
	for _, format := range []string{"tar", "zip"} {
		to := filepath.Join(t.TempDir(), "new", "folder")
		status, archive := s.http(http.MethodGet, archiveAt(from, format), testToken, "")
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", format, status, archive)
		}
		if status, text := s.http(http.MethodPut, archiveAt(to, format), testToken, archive); status != http.StatusOK ||
			!strings.Contains(text, `"files":6`) {
			t.Fatalf("%s: %d %s", format, status, text)
		}
		for name, mode := range map[string]fs.FileMode{"a/b/tool": 0o755, "a/data": 0o600, "empty": 0o644} {
			got, err := os.ReadFile(filepath.Join(to, name))
			if err != nil || string(got) != strings.Repeat(name, 1000) {
				t.Errorf("%s: %s has %d bytes, %v", format, name, len(got), err)
			}
			if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode() != mode {
				t.Errorf("%s: %s is %v, %v, want %v", format, name, info.Mode(), err, mode)
			}
		}
		if link, err := os.Readlink(filepath.Join(to, "a", "link")); err != nil || link != "/etc/hostname" {
			t.Errorf("%s: the link leads to %q, %v", format, link, err)
		}
		// Again, over what is there.
		if status, text := s.http(http.MethodPut, archiveAt(to, format), testToken, archive); status != http.StatusOK {
			t.Errorf("%s: again: %d %s", format, status, text)
		}
	}
	for at, want := range map[string]int{
		archiveAt(filepath.Join(from, "none"), "tar"): http.StatusNotFound, archiveAt(filepath.Join(from, "empty"), "tar"): http.StatusBadRequest,
		archiveAt(from, "rar"): http.StatusBadRequest, archiveAt("", "tar"): http.StatusBadRequest,
	} {
		if status, text := s.http(http.MethodGet, at, testToken, ""); status != want {
			t.Errorf("%s: %d %s, want %d", at, status, text, want)
		}
	}
}

func tarOf(headers ...*tar.Header) string {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = 4
		}
		_ = w.WriteHeader(h)
		if h.Typeflag == tar.TypeReg {
			_, _ = w.Write([]byte("evil"))
		}
	}
	_ = w.Close()
	return out.String()
}

func TestAnArchiveStaysInItsFolder(t *testing.T) {
	s := opened(t)
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	must.Succeed(t, os.Mkdir(outside, 0o755))
	target := filepath.Join(outside, "target")
	must.Succeed(t, os.WriteFile(target, []byte("good"), 0o600))
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	w, _ := z.Create("../outside/target")
	_, _ = w.Write([]byte("evil"))
	_ = z.Close()
	file := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	link := func(name, to string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	for name, tc := range map[string]struct {
		format, archive string
		want            int
	}{
		"a name with ..":          {"tar", tarOf(file("../outside/target")), http.StatusBadRequest},
		"an absolute name":        {"tar", tarOf(file(target)), http.StatusBadRequest},
		"a zip's name with ..":    {"zip", zipped.String(), http.StatusBadRequest},
		"a folder that is a link": {"tar", tarOf(link("d", outside), file("d/target")), http.StatusBadRequest},
		"a link with ..":          {"tar", tarOf(link("d", "../outside"), file("d/target")), http.StatusBadRequest},
		"a file that is a link":   {"tar", tarOf(link("f", target), file("f")), http.StatusOK}, // the link is replaced
		"a hard link": {"tar", tarOf(&tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside/target"}),
			http.StatusBadRequest},
		"a device": {"tar", tarOf(&tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}),
			http.StatusBadRequest},
		"no archive":                 {"zip", "nonsense", http.StatusBadRequest},
		"an archive that breaks off": {"tar", tarOf(file("a"), file("b"))[:514], http.StatusBadRequest},
	} {
		to := filepath.Join(base, "inside", strings.ReplaceAll(name, "/", "-"))
		if status, text := s.http(http.MethodPut, archiveAt(to, tc.format), testToken, tc.archive); status != tc.want {
			t.Errorf("%s: %d %s, want %d", name, status, text, tc.want)
		}
		if got, err := os.ReadFile(target); err != nil || string(got) != "good" {
			t.Fatalf("%s: what is outside has %q, %v", name, got, err)
		}
	}
}

// sparseTar has a file in GNU's format for files with holes: eight bytes that are not in the archive, and four that are.
func sparseTar() string {
	text := []byte(tarOf(&tar.Header{Name: "file", Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatGNU}))
	text[156] = tar.TypeGNUSparse
	copy(text[386:], "00000000010\x00"+"00000000004\x00") // where the four are, and how many
	copy(text[483:], "00000000014\x00")                   // the size of the file
	copy(text[148:], "        ")
	sum := 0
	for _, b := range text[:512] {
		sum += int(b)
	}
	copy(text[148:], fmt.Sprintf("%06o\x00 ", sum))
	return string(text)
}

// git writes a global header, and tar -S files with holes.
func TestArchivesOfOtherProgramsAreUnpacked(t *testing.T) {
	s := opened(t)
	for name, tc := range map[string]struct{ archive, want string }{
		"a global header": {tarOf(
			&tar.Header{Name: "pax_global_header", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "a commit"}},
			&tar.Header{Name: "file", Typeflag: tar.TypeReg, Mode: 0o644},
		), "evil"},
		"a file with holes": {sparseTar(), strings.Repeat("\x00", 8) + "evil"},
	} {
		to := t.TempDir()
		if status, text := s.http(http.MethodPut, archiveAt(to, "tar"), testToken, tc.archive); status != http.StatusOK ||
			!strings.Contains(text, `"files":1`) {
			t.Errorf("%s: %d %s", name, status, text)
		}
		if got, err := os.ReadFile(filepath.Join(to, "file")); err != nil || string(got) != tc.want {
			t.Errorf("%s: the file has %q, %v, want %q", name, got, err, tc.want)
		}
		if entries, err := os.ReadDir(to); err != nil || len(entries) != 1 {
			t.Errorf("%s: the folder has %v, %v", name, entries, err)
		}
	}
}

// vanishing is an archive during which what its folder has is removed.
type vanishing struct {
	packer
	folder string
}

func (v *vanishing) add(name string, info fs.FileInfo, link string, content io.Reader) error {
	return errors.Join(v.packer.add(name, info, link, content), os.RemoveAll(v.folder))
}

func TestAnArchiveIsWithoutWhatIsGoneMeanwhile(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, os.MkdirAll(filepath.Join(dir, "a", "deep"), 0o755))
	must.Succeed(t, os.Symlink("a", filepath.Join(dir, "link")))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	root, err := os.OpenRoot(dir)
	must.Succeed(t, err)
	defer func() { _ = root.Close() }()
	var out bytes.Buffer
	to := &vanishing{&tarPacker{tar.NewWriter(&out)}, dir}
	must.Succeed(t, packFolder(t.Context(), root, to, "."))
	must.Succeed(t, to.Close())
	reader := tar.NewReader(&out)
	first, err := reader.Next()
	must.Succeed(t, err)
	if second, err := reader.Next(); first.Name != "a/" || !errors.Is(err, io.EOF) {
		t.Errorf("the archive has %v, then %v, %v, want the folder alone", first, second, err)
	}
}

func TestAnArchiveHasNamesOfAnyBytes(t *testing.T) {
	s := opened(t)
	from := t.TempDir()
	const name = "sub\xff/f\xe9"
	must.Succeed(t, os.Mkdir(filepath.Join(from, filepath.Dir(name)), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(from, name), []byte("text"), 0o600))
	for _, format := range []string{"tar", "zip"} {
		status, archive := s.http(http.MethodGet, archiveAt(from, format), testToken, "")
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", format, status, archive)
		}
		to := t.TempDir()
		if status, text := s.http(http.MethodPut, archiveAt(to, format), testToken, archive); status != http.StatusOK {
			t.Errorf("%s: %d %s", format, status, text)
		}
		if text, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(text) != "text" {
			t.Errorf("%s: the file has %q, %v", format, text, err)
		}
	}
}

// A folder whose first files cannot be read is refused with the reason, before any of its archive is sent.
func TestAnArchiveOfWhatCannotBeReadIsRefused(t *testing.T) {
	s := opened(t)
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o000))
	unprivileged.Goroutine(t)
	request := httptest.NewRequest(http.MethodGet, archiveAt(dir, "zip"), nil)
	request.Header.Set(TokenHeader, testToken)
	response := httptest.NewRecorder()
	s.daemon.ServeHTTP(response, request) // without a connection, so that this goroutine reads the file
	if response.Code != http.StatusForbidden {
		t.Errorf("%d %q, want 403", response.Code, response.Body)
	}
}
