// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"navix.sh/atoll/e2e/must"
)

func TestAFolderIsCopiedWithItsModesAndLinks(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	must.Succeed(t, os.MkdirAll(filepath.Join(from, "bin"), 0o750))
	must.Succeed(t, os.WriteFile(filepath.Join(from, "bin", "tool"), []byte("#!"), 0o750))
	must.Succeed(t, os.Symlink("bin/tool", filepath.Join(from, "tool")))
	var packed bytes.Buffer
	must.Succeed(t, pack(&packed, from, "work"))
	must.Succeed(t, unpackInto(&packed, to))
	info, err := os.Stat(filepath.Join(to, "work", "bin", "tool"))
	must.Succeed(t, err)
	if info.Mode().Perm() != 0o750 {
		t.Errorf("the mode is %o", info.Mode().Perm())
	}
	if content, err := os.ReadFile(filepath.Join(to, "work", "tool")); err != nil || string(content) != "#!" {
		t.Errorf("the link leads to %q, %v", content, err)
	}
}

// TestALinkThatIsTheSourceIsFollowed, to a folder as to a file.
func TestALinkThatIsTheSourceIsFollowed(t *testing.T) {
	from := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(from, "folder"), 0o750))
	must.Succeed(t, os.WriteFile(filepath.Join(from, "folder", "file"), []byte("content"), 0o640))
	for target, copied := range map[string]string{"folder": "work/file", "folder/file": "work"} {
		link, to := filepath.Join(t.TempDir(), "link"), t.TempDir()
		must.Succeed(t, os.Symlink(filepath.Join(from, target), link))
		var packed bytes.Buffer
		must.Succeed(t, pack(&packed, link, "work"))
		must.Succeed(t, unpackInto(&packed, to))
		if content, err := os.ReadFile(filepath.Join(to, copied)); err != nil || string(content) != "content" {
			t.Errorf("of a link to %s, %s has %q, %v", target, copied, content, err)
		}
	}
}

// TestAFileOfTwoNamesIsCopiedUnderBoth: tar writes the second one as a hard link. Another copy replaces the first one.
func TestAFileOfTwoNamesIsCopiedUnderBoth(t *testing.T) {
	to := t.TempDir()
	for _, content := range []string{"before", "after"} {
		var packed bytes.Buffer
		w := tar.NewWriter(&packed)
		must.Succeed(t, w.WriteHeader(&tar.Header{Name: "./a", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}))
		_, err := w.Write([]byte(content))
		must.Succeed(t, err)
		must.Succeed(t, w.WriteHeader(&tar.Header{Name: "./folder/b", Typeflag: tar.TypeLink, Mode: 0o644, Linkname: "./a"}))
		must.Succeed(t, w.Close())
		must.Succeed(t, unpackInto(&packed, to))
		for _, name := range []string{"a", "folder/b"} {
			if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != content {
				t.Errorf("%s has %q, want %q: %v", name, got, content, err)
			}
		}
	}
}

// A sandbox may send any stream: nothing is written outside of the folder.
func TestI14ASandboxWritesNowhereElse(t *testing.T) {
	outside := t.TempDir()
	for name, stream := range map[string][]tar.Header{
		"dots":             {{Name: "../evil", Typeflag: tar.TypeReg}},
		"an absolute name": {{Name: "/etc/evil", Typeflag: tar.TypeReg}},
		"an absolute link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l/evil", Typeflag: tar.TypeReg}},
		"a link upwards":   {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../x"}},
		"a link behind a link": {{Name: "d", Typeflag: tar.TypeSymlink, Linkname: "."},
			{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../x"}},
		"a link's own upwards": {{Name: "a/", Typeflag: tar.TypeDir}, {Name: "a/l", Typeflag: tar.TypeSymlink, Linkname: "../../x"}},
		"a hard link upwards":  {{Name: "l", Typeflag: tar.TypeLink, Linkname: "../x"}},
		"a hard link to a link": {{Name: "a/", Typeflag: tar.TypeDir}, {Name: "a/l", Typeflag: tar.TypeSymlink, Linkname: "../x"},
			{Name: "l", Typeflag: tar.TypeLink, Linkname: "a/l"}},
		"dots within the name":  {{Name: "a/../../evil", Typeflag: tar.TypeReg}},
		"a folder of dots":      {{Name: "../evil/", Typeflag: tar.TypeDir}},
		"a link of the way out": {{Name: "../l", Typeflag: tar.TypeSymlink, Linkname: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			var packed bytes.Buffer
			w := tar.NewWriter(&packed)
			for _, header := range stream {
				header.Mode = 0o644
				must.Succeed(t, w.WriteHeader(&header))
			}
			must.Succeed(t, w.Close())
			folder := filepath.Join(parent, "folder")
			must.Succeed(t, os.Mkdir(folder, 0o700))
			if err := unpackInto(&packed, folder); err == nil {
				t.Error("it is taken")
			}
			for _, dir := range []string{parent, outside} {
				entries, err := os.ReadDir(dir)
				must.Succeed(t, err)
				for _, entry := range entries {
					if entry.Name() != "folder" {
						t.Errorf("%s lies in %s", entry.Name(), dir)
					}
				}
			}
		})
	}
}
