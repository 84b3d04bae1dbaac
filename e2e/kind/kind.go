// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Environment variables, see the package documentation.
const (
	KeepEnv      = "KEEP"
	ReuseEnv     = "REUSE"
	NodeImageEnv = "KIND_NODE_IMAGE"
)

// createPatience bounds the time until a Node is Ready; on a busy machine it is much longer than the usual 20 s.
const createPatience = 3 * time.Minute

// Options configure clusters. The zero value is useful.
type Options struct {
	// ConfigDir has one file <name>.yaml for each cluster. Default: kind-configs of this checkout.
	ConfigDir string
	// Keep leaves the clusters in place at the end; Reuse also uses existing ones. Default: KEEP, REUSE.
	Keep, Reuse bool
	// Remove deletes the created clusters, whatever KEEP says.
	Remove bool
	// Log receives progress, a line at a time. Default: standard error.
	Log io.Writer
}

// Set is a number of clusters that were created together.
type Set struct {
	clusters []*Cluster
	opts     Options
	dir      string

	mu      sync.Mutex
	created []string
}

// Up creates the named clusters in parallel, and returns when all are usable. If it fails, it deletes those that it created.
func Up(ctx context.Context, opts Options, names ...string) (*Set, error) {
	opts, err := opts.withDefaults(ctx)
	if err != nil {
		return nil, err
	}
	there, err := existing(ctx, opts, names)
	if err != nil {
		return nil, err
	}
	engine, err := findEngine()
	if err != nil {
		return nil, err
	}
	s := &Set{opts: opts}
	if s.dir, err = os.MkdirTemp("", "atoll-kind-"); err != nil {
		return nil, fmt.Errorf("making a folder for kubeconfigs: %w", err)
	}
	begin := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	for _, name := range names {
		c := &Cluster{Name: name, dir: s.dir, engine: engine}
		s.clusters = append(s.clusters, c)
		group.Go(func() error {
			if err := s.up(groupCtx, c, slices.Contains(there, name)); err != nil {
				return fmt.Errorf("bringing up kind cluster %s: %w", name, err)
			}
			s.printf("%s is up after %.1fs", name, time.Since(begin).Seconds())
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		s.opts.Keep = false
		return nil, errors.Join(err, s.Down(ctx))
	}
	return s, nil
}

func (o Options) withDefaults(ctx context.Context) (Options, error) {
	o.Keep = !o.Remove && (o.Keep || os.Getenv(KeepEnv) != "")
	o.Reuse = o.Reuse || os.Getenv(ReuseEnv) != ""
	if o.Log == nil {
		o.Log = os.Stderr
	}
	if o.ConfigDir == "" {
		root, err := run(ctx, nil, "go", "list", "-m", "-f", "{{.Dir}}", "navix.sh/atoll")
		if err != nil {
			return o, fmt.Errorf("finding the checkout: %w", err)
		}
		o.ConfigDir = filepath.Join(strings.TrimSpace(root), "kind-configs")
	}
	return o, nil
}

// existing returns which of the clusters exist already. Unless they may be reused that is an error; because they might be a
// user's.
func existing(ctx context.Context, opts Options, names []string) ([]string, error) {
	out, err := run(ctx, nil, "kind", "get", "clusters")
	if err != nil {
		return nil, fmt.Errorf("looking for kind clusters: %w", err)
	}
	var there []string
	for _, name := range strings.Fields(out) {
		if slices.Contains(names, name) {
			there = append(there, name)
		}
	}
	if len(there) > 0 && !opts.Reuse {
		return nil, fmt.Errorf("there are kind clusters of these names already; to remove them: kind delete clusters %s (or reuse them: %s=1)",
			strings.Join(there, " "), ReuseEnv)
	}
	return there, nil
}

// findEngine returns the container engine that kind uses, found as kind does.
func findEngine() (string, error) {
	if provider := os.Getenv("KIND_EXPERIMENTAL_PROVIDER"); provider != "" {
		return provider, nil
	}
	for _, name := range []string{"docker", "nerdctl", "podman"} {
		if _, err := exec.LookPath(name); err == nil {
			return name, nil
		}
	}
	return "", errors.New("no container engine for kind: neither docker nor nerdctl nor podman is on PATH")
}

func (s *Set) up(ctx context.Context, c *Cluster, there bool) error {
	if there {
		if _, err := run(ctx, nil, "kind", "export", "kubeconfig", "--name", c.Name, "--kubeconfig", c.Kubeconfig()); err != nil {
			return err
		}
	} else {
		s.mu.Lock()
		s.created = append(s.created, c.Name)
		s.mu.Unlock()
		args := []string{"create", "cluster", "--name", c.Name, "--config", filepath.Join(s.opts.ConfigDir, c.Name+".yaml"),
			"--kubeconfig", c.Kubeconfig(), "--wait", createPatience.String()}
		if image := os.Getenv(NodeImageEnv); image != "" {
			args = append(args, "--image", image)
		}
		if _, err := run(ctx, nil, "kind", args...); err != nil {
			return err
		}
	}
	return c.connect(ctx)
}

// Clusters returns the clusters in the order of their names in Up.
func (s *Set) Clusters() []*Cluster { return s.clusters }

// Load makes images available in all clusters, from archives as `docker save` writes them.
func (s *Set) Load(ctx context.Context, archives ...string) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, c := range s.clusters {
		group.Go(func() error { return c.Load(groupCtx, archives...) })
	}
	return group.Wait()
}

// downPatience bounds the removal, which also runs after the caller's deadline.
const downPatience = 2 * time.Minute

// Down deletes the clusters, unless they are to be kept. No set at all is down.
func (s *Set) Down(ctx context.Context) error {
	if s == nil {
		return nil
	}
	if s.opts.Keep || s.opts.Reuse {
		for _, c := range s.clusters {
			s.printf("%s is kept: kubectl --kubeconfig %s", c.Name, c.Kubeconfig())
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downPatience)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	// With its own kubeconfig, so that the user's is unchanged.
	args := append([]string{"delete", "clusters", "--kubeconfig", filepath.Join(s.dir, "deleted.kubeconfig")}, s.created...)
	var errs []error
	if len(s.created) > 0 {
		if _, err := run(ctx, nil, "kind", args...); err != nil {
			errs = append(errs, fmt.Errorf("deleting clusters: %w", err))
		}
	}
	s.created = nil
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func (s *Set) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// An unwritable progress line is ignored.
	_, _ = fmt.Fprintf(s.opts.Log, "kind: "+format+"\n", args...)
}

// run returns a command's standard output. The error has its standard error.
func run(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), cmp.Or(context.Cause(ctx), err),
			strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
