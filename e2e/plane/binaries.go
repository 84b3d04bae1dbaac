// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The versions of downloads. modules/*/go.mod pin those of builds; TestModulesPinTheVersionsThatAreDownloaded compares the two.
const (
	kubernetesVersion = "v1.36.3"
	etcdVersion       = "v3.6.8"
	kwokVersion       = "v0.8.0"
)

// progressInterval is the time between progress lines of a long step.
const progressInterval = 5 * time.Second

// binary is a program that planes need.
type binary struct {
	name   string
	module string // directory below modules
	pkg    string // import path of its main package
}

var binaries = []binary{
	{"kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"},
	{"etcd", "etcd", "go.etcd.io/etcd/server/v3"},
	{"kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"},
	{"kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"},
}

// Binaries obtains the programs that planes need, as Up does, and returns their directory. Called before tests, it keeps a
// first build's minutes out of their time limit, and its progress visible.
func Binaries(ctx context.Context, opts Options) (string, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	return findBinaries(ctx, opts, &progress{w: opts.Log})
}

// findBinaries returns a directory that holds all binaries.
func findBinaries(ctx context.Context, opts Options, log *progress) (string, error) {
	if opts.BinDir != "" {
		if missing := missingBinaries(opts.BinDir); len(missing) > 0 {
			return "", fmt.Errorf("%s lacks %s", opts.BinDir, strings.Join(missing, ", "))
		}
		return opts.BinDir, nil
	}
	dir := filepath.Join(opts.CacheDir, cacheKey())
	if len(missingBinaries(dir)) == 0 {
		return dir, nil
	}
	if err := os.MkdirAll(opts.CacheDir, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache: %w", err)
	}
	// The lock has the directory's name and lies beside it; because the directory appears by a rename.
	lock, err := waitForLock(ctx, dir+".lock", log)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if len(missingBinaries(dir)) == 0 {
		return dir, nil
	}
	return dir, fillCache(ctx, dir, log)
}

// cacheKey is a hash of what the binaries depend on.
func cacheKey() string {
	inputs := []string{kubernetesVersion, etcdVersion, kwokVersion, runtime.GOOS, runtime.GOARCH, runtime.Version()}
	sum := sha256.Sum256([]byte(strings.Join(inputs, "\n")))
	return fmt.Sprintf("kubernetes-%s-%x", kubernetesVersion, sum[:6])
}

func missingBinaries(dir string) []string {
	var missing []string
	for _, b := range binaries {
		if info, err := os.Stat(filepath.Join(dir, b.name)); err != nil || info.Mode()&0o111 == 0 {
			missing = append(missing, b.name)
		}
	}
	return missing
}

// fillCache obtains all binaries in a temporary directory, and renames it when it is complete. The caller must hold the cache's
// lock.
func fillCache(ctx context.Context, dir string, log *progress) error {
	partial := dir + ".partial"
	// Left by an earlier attempt that was killed.
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("emptying the cache: %w", err)
	}
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return fmt.Errorf("creating the cache: %w", err)
	}
	err := obtain(ctx, partial, log)
	if err == nil {
		// Incomplete, or it would not be filled.
		err = errors.Join(os.RemoveAll(dir), os.Rename(partial, dir))
	}
	return errors.Join(err, os.RemoveAll(partial))
}

func obtain(ctx context.Context, dir string, log *progress) error {
	releases := officialReleases
	if err := releases.reachable(ctx); err != nil {
		log.printf("release binaries cannot be downloaded (%v); building them, which takes some minutes the first time", err)
		return build(ctx, dir, log)
	}
	err := releases.download(ctx, dir, log)
	if err == nil || ctx.Err() != nil {
		return err
	}
	log.printf("downloading failed (%v); building instead, which takes some minutes the first time", err)
	return build(ctx, dir, log)
}

func waitForLock(ctx context.Context, path string, log *progress) (*os.File, error) {
	begin := time.Now()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	said := begin.Add(-progressInterval)
	for {
		lock, err := LockFile(path, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return lock, err
		}
		if time.Since(said) >= progressInterval {
			said = time.Now()
			log.printf("another process is obtaining the binaries, waiting (%s)", elapsed(begin))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another process to obtain the binaries: %w", context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// during prints every few seconds that a step is running, until the returned function is called.
func (p *progress) during(what string) (done func()) {
	begin := time.Now()
	p.printf("%s", what)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				p.printf("%s (%s)", what, elapsed(begin))
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

func elapsed(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }
