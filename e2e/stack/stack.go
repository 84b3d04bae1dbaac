// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/pkg/link"
)

// Namespace is where workers live in their clusters.
const Namespace = "atoll-system"

// Options say what to run. BinDir is required.
type Options struct {
	// BinDir holds atoll-hub and atoll-worker.
	BinDir string
	// LogDir receives the programs' logs. Default: a folder that is removed with the planes.
	LogDir string
	// Log is told of progress, a line at a time.
	Log io.Writer
	// HubArgs and WorkerArgs are added to the command lines.
	HubArgs, WorkerArgs []string
}

// Stack is a hub and one worker for every plane of a set.
type Stack struct {
	Set *plane.Set
	Hub *Process

	workers map[string]*Process
	addr    map[string]string // public address by cluster; "" is the hub's
	metrics map[string]string
	certs   map[string]link.Files
	logDir  string
	dir     string
	opts    Options
	link    string
	clients []io.Closer
}

// Start brings up hub and workers on the planes and returns when all say that they are ready. When it fails, the caller
// still takes down the set.
func Start(ctx context.Context, set *plane.Set, opts Options) (*Stack, error) {
	s := &Stack{
		Set: set, opts: opts, dir: filepath.Join(set.Dir(), "atoll"), logDir: opts.LogDir,
		workers: map[string]*Process{}, addr: map[string]string{}, metrics: map[string]string{}, certs: map[string]link.Files{},
	}
	if s.logDir == "" {
		s.logDir = filepath.Join(s.dir, "logs")
	}
	for _, dir := range []string{s.dir, s.logDir, filepath.Join(s.dir, "hub")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("creating a folder of the stack: %w", err)
		}
	}
	if err := s.writeCertificates(); err != nil {
		return nil, err
	}
	if err := s.prepareHub(); err != nil {
		return nil, err
	}
	if err := s.Hub.Start(ctx); err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, p := range set.Planes() {
		worker, err := s.prepareWorker(p.Name)
		if err != nil {
			return nil, errors.Join(err, group.Wait())
		}
		s.workers[p.Name] = worker
		group.Go(func() error { return s.startWorker(groupCtx, p, worker) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Stack) prepareHub() error {
	addresses, err := freeAddresses(4)
	if err != nil {
		return err
	}
	s.addr[""], s.link, s.metrics[""] = addresses[0], addresses[1], addresses[2]
	s.Hub = &Process{
		Name: "hub", LogPath: filepath.Join(s.logDir, "hub.log"), set: s.Set,
		path: filepath.Join(s.opts.BinDir, "atoll-hub"), health: addresses[3],
		args: append([]string{
			"--listen=" + s.addr[""], "--link-listen=" + s.link,
			"--metrics-listen=" + s.metrics[""], "--health-listen=" + addresses[3],
			"--data-dir=" + filepath.Join(s.dir, "hub"),
		}, append(tlsFlags(s.certs[""]), s.opts.HubArgs...)...),
	}
	return nil
}

func (s *Stack) prepareWorker(cluster string) (*Process, error) {
	addresses, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	s.addr[cluster], s.metrics[cluster] = addresses[0], addresses[1]
	return &Process{
		Name: "worker " + cluster, LogPath: filepath.Join(s.logDir, "worker-"+cluster+".log"), set: s.Set,
		path: filepath.Join(s.opts.BinDir, "atoll-worker"), health: addresses[2],
		args: append([]string{
			"--cluster-id=" + cluster, "--hub=" + s.link, "--kubeconfig=" + filepath.Join(s.dir, cluster+".kubeconfig"),
			"--listen=" + s.addr[cluster], "--metrics-listen=" + s.metrics[cluster], "--health-listen=" + addresses[2],
		}, append(tlsFlags(s.certs[cluster]), s.opts.WorkerArgs...)...),
	}, nil
}

// startWorker applies the chart's RBAC and runs the worker under its ServiceAccount.
func (s *Stack) startWorker(ctx context.Context, p *plane.Plane, worker *Process) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	if out, err := p.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(root, "charts", "worker", "files", "rbac")); err != nil {
		return fmt.Errorf("applying the worker's RBAC in %s: %w\n%s", p.Name, err, out)
	}
	kubeconfig, err := p.ServiceAccountKubeconfig(ctx, Namespace, "atoll-worker")
	if err != nil {
		return fmt.Errorf("making the worker's kubeconfig in %s: %w", p.Name, err)
	}
	if err := os.Rename(kubeconfig, filepath.Join(s.dir, p.Name+".kubeconfig")); err != nil {
		return fmt.Errorf("placing the worker's kubeconfig: %w", err)
	}
	return worker.Start(ctx)
}

// Worker is the worker of a cluster.
func (s *Stack) Worker(cluster string) *Process { return s.workers[cluster] }

// HubAddress serves the public API of the hub, gRPC and REST, without TLS.
func (s *Stack) HubAddress() string { return s.addr[""] }

// WorkerAddress serves the local API of a worker.
func (s *Stack) WorkerAddress(cluster string) string { return s.addr[cluster] }

// MetricsAddress is where a cluster's worker, or with "" the hub, serves /metrics.
func (s *Stack) MetricsAddress(cluster string) string { return s.metrics[cluster] }

// LogDir holds hub.log and worker-<cluster>.log.
func (s *Stack) LogDir() string { return s.logDir }

// Close closes the stack's clients and stops its programs in order; taking the set down without it is fine as well.
func (s *Stack) Close() error {
	errs := make([]error, 0, len(s.clients)+len(s.workers)+1)
	for _, c := range s.clients {
		errs = append(errs, c.Close())
	}
	for _, p := range append([]*Process{s.Hub}, values(s.workers)...) {
		if !p.Ended() {
			errs = append(errs, p.Resume(), p.Stop())
		}
	}
	return errors.Join(errs...)
}

func values(m map[string]*Process) []*Process {
	out := make([]*Process, 0, len(m))
	for _, p := range m {
		out = append(out, p)
	}
	return out
}

// Build compiles the hub and the worker into dir; with race, so that the detector watches them as well.
func Build(ctx context.Context, dir string, race bool) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	for name, pkg := range map[string]string{"atoll-hub": "./hub", "atoll-worker": "./worker", "atollctl": "./cli"} {
		args := []string{"build", "-o", filepath.Join(dir, name)}
		if race {
			args = append(args, "-race")
		}
		cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
		cmd.Dir = root
		cmd.WaitDelay = time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// moduleRoot is the folder of Atoll's go.mod: the programs and charts under test are those of this checkout.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "navix.sh/atoll").Output()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	return string(out[:len(out)-1]), nil
}
