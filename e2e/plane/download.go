// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	// reachTimeout bounds the check whether downloads are possible.
	reachTimeout = 3 * time.Second
	// downloadTimeout is when a build is likely to be faster than the rest of a slow download.
	downloadTimeout = 4 * time.Minute
)

// releases are the sites that publish the binaries.
type releases struct {
	kubernetes string // base of <version>/bin/<os>/<arch>/<name>
	github     string // base of <owner>/<repository>/releases/download/<version>/<file>
}

var officialReleases = releases{kubernetes: "https://dl.k8s.io/release", github: "https://github.com"}

func (r releases) kubernetesURL(name string) string {
	return fmt.Sprintf("%s/%s/bin/%s/%s/%s", r.kubernetes, kubernetesVersion, runtime.GOOS, runtime.GOARCH, name)
}

func (r releases) etcdArchive() string {
	return fmt.Sprintf("etcd-%s-%s-%s.tar.gz", etcdVersion, runtime.GOOS, runtime.GOARCH)
}

func (r releases) etcdURL(file string) string {
	return fmt.Sprintf("%s/etcd-io/etcd/releases/download/%s/%s", r.github, etcdVersion, file)
}

func (r releases) kwokURL() string {
	return fmt.Sprintf("%s/kubernetes-sigs/kwok/releases/download/%s/kwok-%s-%s", r.github, kwokVersion, runtime.GOOS, runtime.GOARCH)
}

// reachable returns nil when every site has what this platform needs (there is no kube-apiserver for macOS).
func (r releases) reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	client, closeIdle := newDownloadClient()
	defer closeIdle()
	for _, url := range []string{r.kubernetesURL("kube-apiserver"), r.kwokURL()} {
		request, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, response.Status)
		}
	}
	return nil
}

func (r releases) download(ctx context.Context, dir string, log *progress) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	client, closeIdle := newDownloadClient()
	defer closeIdle()
	for i, b := range binaries {
		done := log.during(fmt.Sprintf("downloading %s (%d of %d)", b.name, i+1, len(binaries)))
		content, err := r.fetchBinary(ctx, client, b)
		done()
		if err != nil {
			return fmt.Errorf("downloading %s: %w", b.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, b.name), content, 0o755); err != nil {
			return fmt.Errorf("storing %s: %w", b.name, err)
		}
	}
	return nil
}

// fetchBinary compares a download with the publisher's checksum. kwok publishes none; there TLS is the only protection.
func (r releases) fetchBinary(ctx context.Context, client *http.Client, b binary) ([]byte, error) {
	switch b.module {
	case "kubernetes":
		url := r.kubernetesURL(b.name)
		sum, err := fetch(ctx, client, url+".sha256")
		if err != nil {
			return nil, err
		}
		return fetchVerified(ctx, client, url, strings.TrimSpace(string(sum)))
	case "etcd":
		sums, err := fetch(ctx, client, r.etcdURL("SHA256SUMS"))
		if err != nil {
			return nil, err
		}
		sum, err := findSum(sums, r.etcdArchive())
		if err != nil {
			return nil, err
		}
		archive, err := fetchVerified(ctx, client, r.etcdURL(r.etcdArchive()), sum)
		if err != nil {
			return nil, err
		}
		return extract(archive, b.name)
	default:
		return fetch(ctx, client, r.kwokURL())
	}
}

func fetchVerified(ctx context.Context, client *http.Client, url, wantSum string) ([]byte, error) {
	content, err := fetch(ctx, client, url)
	if err != nil {
		return nil, err
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(content)); sum != wantSum {
		return nil, fmt.Errorf("%s: has SHA-256 %s, published is %s", url, sum, wantSum)
	}
	return content, nil
}

func fetch(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return content, nil
}

// findSum finds a file in the output of sha256sum.
func findSum(sums []byte, file string) (string, error) {
	lines := bufio.NewScanner(bytes.NewReader(sums))
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 && strings.TrimPrefix(fields[1], "*") == file {
			return fields[0], nil
		}
	}
	return "", errors.Join(lines.Err(), fmt.Errorf("no sum of %s was published", file))
}

// extract returns the file with that base name from a gzipped tar archive.
func extract(archive []byte, name string) ([]byte, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("unpacking: %w", err)
	}
	entries := tar.NewReader(unzipped)
	for {
		header, err := entries.Next()
		if err != nil {
			return nil, fmt.Errorf("looking for %s in the archive: %w", name, err)
		}
		if header.Typeflag == tar.TypeReg && path.Base(header.Name) == name {
			return io.ReadAll(entries)
		}
	}
}

// newDownloadClient has its own connections, so that all of them can be closed.
func newDownloadClient() (client *http.Client, closeIdle func()) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &http.Client{Transport: transport}, transport.CloseIdleConnections
}
