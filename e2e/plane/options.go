// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	_ "navix.sh/atoll/charts" // a test depends on the CRDs, and on the other files it applies from there
)

// Environment variables that override the options of the same name, for whole test runs.
const (
	BinDirEnv   = "ATOLL_PLANE_BIN_DIR"
	CacheDirEnv = "ATOLL_PLANE_CACHE_DIR"
)

// RestartAnnotation on a Pod ends its first container once for every new value. The value is "<n>" or "<n>:<exit code>";
// without an exit code it is 1.
const RestartAnnotation = "plane.atoll.test/restart"

// ResizeAnnotation on a Pod stops its node from resizing it: "Deferred" or "Infeasible", and why. A resize requested after the
// annotation is removed works.
const ResizeAnnotation = "plane.atoll.test/resize"

// Options configure planes. The zero value is useful.
type Options struct {
	// BinDir holds etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok. Default: found,
	// downloaded or built, see the package documentation.
	BinDir string
	// CacheDir keeps binaries between runs. Default: atoll/planes in the user's cache directory.
	CacheDir string
	// Dir holds the state of running planes. Default: a directory of this user in the system's temporary directory. All sets
	// below one Dir clean up after each other.
	Dir string
	// LogDir receives the components' logs and the audit logs as <plane>/<component>.log, and keeps them after Down. Default:
	// they are removed with the set.
	LogDir string
	// CRDDir holds manifests of CustomResourceDefinitions to install. Default: those of the worker's chart.
	CRDDir string
	// Log receives progress, a line at a time. Default: standard error.
	Log io.Writer
	// Nodes per plane. Default 2.
	Nodes int
	// AuditLog records every request to the API servers, for Plane.Audit.
	AuditLog bool
	// Sandboxd is the path of atoll-sandboxd. Forwards to its port in a Pod lead to a process of it that is the own of the Pod's first
	// container; default: to that port of this machine.
	Sandboxd string
	// Delays of the imitated kubelet.
	Delays Delays
}

// Delays of the imitated kubelet. A zero becomes the default; use a nanosecond for none.
type Delays struct {
	// Start is the shortest time from scheduled to Ready. Default 200 ms.
	Start time.Duration
	// StartMax is the longest time from scheduled to Ready. Default 500 ms.
	StartMax time.Duration
	// Pull is the time to pull the new image of a swap. Default 300 ms.
	Pull time.Duration
	// Exit is how long a container runs whose image name makes it end. Default 500 ms.
	Exit time.Duration
	// Backoff is the time in CrashLoopBackOff before every restart. Default 1 s.
	Backoff time.Duration
	// Terminate is the time until the containers of a deleted Pod have ended. Default 100 ms.
	Terminate time.Duration
}

func (o Options) withDefaults() (Options, error) {
	o.BinDir = cmp.Or(os.Getenv(BinDirEnv), o.BinDir)
	o.CacheDir = cmp.Or(os.Getenv(CacheDirEnv), o.CacheDir)
	if o.CacheDir == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return o, fmt.Errorf("choosing a cache directory (or set %s): %w", CacheDirEnv, err)
		}
		o.CacheDir = filepath.Join(dir, "atoll", "planes")
	}
	// Processes run in their own directories, so no path may be relative.
	for _, path := range []*string{&o.BinDir, &o.CacheDir, &o.Dir, &o.LogDir, &o.CRDDir, &o.Sandboxd} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return o, fmt.Errorf("resolving %s: %w", *path, err)
		}
		*path = abs
	}
	o.Dir = cmp.Or(o.Dir, filepath.Join(os.TempDir(), "atoll-planes-"+strconv.Itoa(os.Getuid())))
	if o.Log == nil {
		o.Log = os.Stderr
	}
	o.Nodes = cmp.Or(o.Nodes, 2)
	o.Delays = o.Delays.withDefaults()
	return o, nil
}

func (d Delays) withDefaults() Delays {
	d.Start = cmp.Or(d.Start, 200*time.Millisecond)
	d.StartMax = max(cmp.Or(d.StartMax, 500*time.Millisecond), d.Start)
	d.Pull = cmp.Or(d.Pull, 300*time.Millisecond)
	d.Exit = cmp.Or(d.Exit, 500*time.Millisecond)
	d.Backoff = cmp.Or(d.Backoff, time.Second)
	d.Terminate = cmp.Or(d.Terminate, 100*time.Millisecond)
	return d
}

// progress writes lines that several planes report concurrently.
type progress struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *progress) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// An unwritable progress line is ignored.
	_, _ = fmt.Fprintf(p.w, "plane: "+format+"\n", args...)
}
