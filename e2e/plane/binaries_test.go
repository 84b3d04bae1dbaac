// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
)

func TestModulesPinTheVersionsThatAreDownloaded(t *testing.T) {
	source, err := sourceDir()
	must.Succeed(t, err)
	for module, want := range map[string]struct{ path, version string }{
		"kubernetes": {"k8s.io/kubernetes", kubernetesVersion},
		"etcd":       {"go.etcd.io/etcd/server/v3", etcdVersion},
		"kwok":       {"sigs.k8s.io/kwok", kwokVersion},
	} {
		content, err := os.ReadFile(filepath.Join(source, "modules", module, "go.mod"))
		must.Succeed(t, err)
		lines := strings.FieldsFunc(string(content), func(r rune) bool { return r == '\n' || r == '\t' })
		has := func(line string) bool {
			return slices.ContainsFunc(lines, func(l string) bool { return strings.TrimSuffix(l, " // indirect") == line })
		}
		if !has(want.path + " " + want.version) {
			t.Errorf("what is built is not %s %s, which is downloaded", want.path, want.version)
		}
		for _, b := range binaries {
			if b.module == module && !has(b.pkg) && !has("tool "+b.pkg) {
				t.Errorf("%s is no tool of its module", b.pkg)
			}
		}
	}
}

func TestAPIServerKnowsItsVersion(t *testing.T) {
	got := ldflags(binary{module: "kubernetes"})
	want := "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 " +
		"-X k8s.io/component-base/version.gitMinor=36 -X k8s.io/component-base/version.gitCommit=unknown " +
		"-X k8s.io/component-base/version.gitTreeState=clean"
	if got != want {
		t.Errorf("linker flags are %s", got)
	}
}

// releaseSite stands in for both release sites. Files are by URL path.
func releaseSite(t *testing.T) (releases, map[string][]byte) {
	t.Helper()
	files := map[string][]byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content)
	}))
	t.Cleanup(server.Close)
	site := releases{kubernetes: server.URL + "/release", github: server.URL}
	put := func(url string, content []byte) { files[strings.TrimPrefix(url, server.URL)] = content }
	sum := func(content []byte) []byte { return fmt.Appendf(nil, "%x", sha256.Sum256(content)) }
	for _, b := range binaries {
		content := []byte("the program " + b.name)
		switch b.module {
		case "kubernetes":
			put(site.kubernetesURL(b.name), content)
			put(site.kubernetesURL(b.name)+".sha256", sum(content))
		case "etcd":
			archive := tarball(t, "etcd-v0/Documentation/etcd", "etcd-v0/etcd", content)
			put(site.etcdURL(site.etcdArchive()), archive)
			put(site.etcdURL("SHA256SUMS"), fmt.Appendf(nil, "00  other\n%s  %s\n", sum(archive), site.etcdArchive()))
		default:
			put(site.kwokURL(), content)
		}
	}
	return site, files
}

// tarball holds a directory and a file.
func tarball(t *testing.T, dir, name string, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	err := errors.Join(
		archive.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}),
		archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}),
	)
	must.Succeed(t, err)
	_, err = archive.Write(content)
	must.Succeed(t, err)
	must.Succeed(t, errors.Join(archive.Close(), zipped.Close()))
	return out.Bytes()
}

func TestDownload(t *testing.T) {
	log := &progress{w: io.Discard}
	site, files := releaseSite(t)
	must.Succeed(t, site.reachable(t.Context()))
	dir := t.TempDir()
	must.Succeed(t, site.download(t.Context(), dir, log))
	if missing := missingBinaries(dir); len(missing) > 0 {
		t.Errorf("not downloaded: %v", missing)
	}
	for _, b := range binaries {
		if content, _ := os.ReadFile(filepath.Join(dir, b.name)); string(content) != "the program "+b.name {
			t.Errorf("%s contains %q", b.name, content)
		}
	}

	for path := range files {
		if strings.HasSuffix(path, "/kubectl") || strings.HasSuffix(path, ".tar.gz") {
			tampered, files := releaseSite(t)
			files[path] = []byte("something else")
			if err := tampered.download(t.Context(), t.TempDir(), log); err == nil || !strings.Contains(err.Error(), "SHA-256") {
				t.Errorf("%s is not what was published: %v", path, err)
			}
		}
	}
}

func TestUnreachableReleasesAreNoticedSoon(t *testing.T) {
	// No process accepts here, and the kernel queues what comes: a network that swallows everything.
	silent := testserver.Listen(t)
	defer silent.Close()
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()

	for name, base := range map[string]string{
		"silent":  "http://" + silent.Addr().String(),
		"refused": "http://127.0.0.1:1",
		"missing": missing.URL,
	} {
		begin := time.Now()
		if err := (releases{kubernetes: base, github: base}).reachable(t.Context()); err == nil {
			t.Errorf("%s: reachable", name)
		}
		if took := time.Since(begin); took > reachTimeout+10*time.Second {
			t.Errorf("%s: found out after %s", name, took)
		}
	}
}

func TestBinariesAreObtainedByOneProcessAtATime(t *testing.T) {
	opts := Options{CacheDir: t.TempDir()}
	dir := filepath.Join(opts.CacheDir, cacheKey())
	lock, err := LockFile(dir+".lock", unix.LOCK_EX)
	must.Succeed(t, err)
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := findBinaries(ctx, opts, &progress{w: &log}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another process holds the lock: %v", err)
	}
	if !strings.Contains(log.String(), "another process") {
		t.Errorf("progress says %q", log.String())
	}

	// The other one finishes.
	must.Succeed(t, os.Mkdir(dir, 0o755))
	for _, b := range binaries {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, b.name), nil, 0o755))
	}
	must.Succeed(t, lock.Close())
	if got, err := findBinaries(t.Context(), opts, &progress{w: io.Discard}); err != nil || got != dir {
		t.Errorf("found %q, %v", got, err)
	}
}

func TestReservedPortIsTakenForOthers(t *testing.T) {
	one, err := reservePort()
	must.Succeed(t, err)
	two, err := reservePort()
	must.Succeed(t, err)
	if one.number == two.number {
		t.Errorf("port %d was reserved twice", one.number)
	}
	address := fmt.Sprintf("127.0.0.1:%d", one.number)
	if listener, err := net.Listen("tcp", address); err == nil {
		_ = listener.Close()
		t.Error("another process can listen on a reserved port")
	}
	must.Succeed(t, errors.Join(one.release(), two.release()))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("a released port is still taken: %v", err)
	}
	_ = listener.Close()
}

func TestDecodeCRDs(t *testing.T) {
	crds, err := decodeCRDs([]byte("---\nkind: CustomResourceDefinition\nmetadata: {name: a}\n---\n" +
		"kind: CustomResourceDefinition\nmetadata: {name: b}\n"))
	if err != nil || len(crds) != 2 || crds[1].Name != "b" {
		t.Errorf("got %d CRDs, %v", len(crds), err)
	}
	if _, err := decodeCRDs([]byte("kind: ConfigMap\nmetadata: {name: a}\n")); err == nil {
		t.Error("a ConfigMap was taken for a CRD")
	}
	if _, err := readCRDs(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a missing directory was read")
	}
}
