// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// build makes images of this very command, which is small and there, as a user's machine would: any folder, any day.
func build(t *testing.T, args ...string) (dir string, files map[string][]byte) {
	t.Helper()
	dir = t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := command(t.Context(), append([]string{"--out", dir, "--root", root}, args...)); err != nil {
		t.Fatal(err)
	}
	files = map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return dir, files
}

var twoImages = []string{"--version", "v1.2.3", "--image", "test registry.example/python:1 ./images", "--image",
	"test registry.example/python:2 ./images --help"}

func TestImages(t *testing.T) {
	dir, files := build(t, twoImages...)
	if got, want := slices.Sorted(maps.Keys(files)), []string{"test.sbom.json", "test.tar"}; !slices.Equal(got, want) {
		t.Fatalf("wrote %v, want %v", got, want)
	}
	ids := map[v1.Hash]bool{}
	for ref, entrypoint := range map[string][]string{
		"registry.example/python:1": {"/images"},
		"registry.example/python:2": {"/images", "--help"},
	} {
		img := load(t, filepath.Join(dir, "test.tar"), ref)
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, entrypoint) || config.OS != "linux" {
			t.Errorf("%s runs %v as %q on %s", ref, config.Config.Entrypoint, config.Config.User, config.OS)
		}
		if got := config.Config.Labels["org.opencontainers.image.version"]; got != "v1.2.3" {
			t.Errorf("%s is labelled with version %q", ref, got)
		}
		wantOneExecutable(t, img, "images")
		id, err := img.ConfigName()
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	if len(ids) != 2 {
		t.Errorf("two images have %d ids", len(ids))
	}
	wantModules(t, files["test.sbom.json"], "github.com/google/go-containerregistry", "std")
}

func TestImagesCanBeReproduced(t *testing.T) {
	_, first := build(t, twoImages...)
	_, second := build(t, twoImages...)
	for file, content := range first {
		if !bytes.Equal(content, second[file]) {
			t.Errorf("%s differs when it is built again", file)
		}
	}
}

func TestProjectImagesHaveAllTags(t *testing.T) {
	var refs []string
	for _, s := range projectImages([]string{"v2", "2.0"}) {
		refs = append(refs, s.refs...)
	}
	if want := []string{"atoll-hub:v2", "atoll-hub:2.0", "atoll-worker:v2", "atoll-worker:2.0", "atoll-sandboxd:v2",
		"atoll-sandboxd:2.0", "atoll-hello:v2", "atoll-hello:2.0"}; !slices.Equal(refs, want) {
		t.Errorf("images are called %v, want %v", refs, want)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"FILE REF PACKAGE":    {"--image", "file ref"},
		"unexpected argument": {"hub"},
		"can only contain":    {"--image", "file UPPER:CASE ./images", "--root", "..", "--out", t.TempDir()},
		"building ./nowhere":  {"--image", "file aa:b ./nowhere", "--root", "..", "--out", t.TempDir()},
	} {
		if err := command(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}

func load(t *testing.T, path, ref string) v1.Image {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatalf("loading %s: %v", ref, err)
	}
	if err := validate.Image(img); err != nil {
		t.Fatalf("%s: %v", ref, err)
	}
	return img
}

// wantOneExecutable checks that there is one file in the image, a static binary that every user may run and none may change.
func wantOneExecutable(t *testing.T, img v1.Image, want string) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	root := mutate.Extract(img)
	defer root.Close()
	files := untar(t, root)
	// Images for tests, and these alone, have a place for tenants to write to.
	if tmp := files["tmp"]; tmp == nil || tmp.mode != 0o1777 {
		t.Errorf("/tmp is %+v", tmp)
	}
	delete(files, "tmp")
	if len(files) != 1 || files[want] == nil || files[want].mode != 0o555 || files[want].uid != 0 {
		t.Fatalf("the image holds %+v", files)
	}
	if bytes.Contains(files[want].content, []byte("ld-linux")) {
		t.Errorf("/%s needs a dynamic linker, and there is none", want)
	}
}

// wantModules looks for libraries with version and package URL in an SBOM.
func wantModules(t *testing.T, sbom []byte, want ...string) {
	t.Helper()
	var bom cyclonedx.BOM
	if err := json.NewDecoder(bytes.NewReader(sbom)).Decode(&bom); err != nil {
		t.Fatalf("reading the SBOM: %v", err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Version != "v1.2.3" {
		t.Errorf("the SBOM is %s of %+v", bom.BOMFormat, bom.Metadata.Component)
	}
	versions := map[string]string{}
	for _, c := range *bom.Components {
		versions[c.Name] = c.Version
		if c.PackageURL != "pkg:golang/"+c.Name+"@"+strings.ReplaceAll(c.Version, "+", "%2B") {
			t.Errorf("%s %s has package URL %s", c.Name, c.Version, c.PackageURL)
		}
	}
	for _, module := range want {
		if versions[module] == "" {
			t.Errorf("the SBOM lacks %s; it has %v", module, versions)
		}
	}
}

type file struct {
	mode    int64
	uid     int
	content []byte
}

func untar(t *testing.T, r io.Reader) map[string]*file {
	t.Helper()
	files := map[string]*file{}
	for entries := tar.NewReader(r); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(entries)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = &file{mode: header.Mode, uid: header.Uid, content: content}
	}
}
