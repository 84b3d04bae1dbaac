// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

const (
	// patience bounds every wait.
	patience = 3 * time.Minute
	// settleTime is how long a filled hub takes to settle.
	settleTime = time.Second
)

// site is a folder for hubs and simulated workers: a CA, certificates, and data on one disk.
type site struct {
	dir       string
	authority *pki.Authority
	hub       link.Files
}

// atSite returns the site, which exists until the group ends.
func (b *bench) atSite() (*site, error) {
	if b.site != nil {
		return b.site, nil
	}
	dir, err := os.MkdirTemp("", "atoll-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the bench: %w", err)
	}
	b.closers = append(b.closers, func() error { return os.RemoveAll(dir) })
	s := &site{dir: dir}
	if s.authority, err = pki.New(s.pki()); err != nil {
		return nil, err
	}
	if s.hub, err = s.authority.Hub("127.0.0.1"); err != nil {
		return nil, err
	}
	b.site = s
	return s, nil
}

func (s *site) pki() string { return filepath.Join(s.dir, "pki") }

// program is a child process with a listener. It can be killed and restarted at the same address.
type program struct {
	path string
	args []string
	env  []string // beside this program's
	link string   // address for workers
	log  string
	cmd  *exec.Cmd
}

func (p *program) start(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(p.log), 0o755); err != nil {
		return fmt.Errorf("creating a folder for logs: %w", err)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening a log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), p.env...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s (`make build` makes it): %w", p.path, err)
	}
	p.cmd = cmd
	return wait.Until(ctx, patience, p.path+" to be up", func(context.Context) error {
		conn, err := net.Dial("tcp", p.link)
		if err == nil {
			_ = conn.Close()
		}
		return wait.If(err == nil, fmt.Sprintf("%v; its log is %s", err, p.log))
	})
}

// kill ends the program like kill -9.
func (p *program) kill() error {
	if p.cmd == nil {
		return nil
	}
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // returns that it was killed
	p.cmd = nil
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s had ended by itself, see %s", p.path, p.log)
	}
	return err
}

// federation is a hub process with simulated workers.
type federation struct {
	sandboxv1.SandboxesClient
	clusters sandboxv1.ClustersClient
	envs     sandboxv1.EnvsClient
	conn     *grpc.ClientConn
	hub      *program
	replicas []replica // all of them; the first is the hub
	etcd     *program  // of several replicas
	crowd    *crowd.Crowd
	site     *site
	data     string // the store's folder
}

// replica is one process of a hub, and what it alone sees.
type replica struct {
	*program
	public   string // address for callers
	clusters sandboxv1.ClustersClient
	conn     *grpc.ClientConn
}

// links are the addresses for workers.
func (f *federation) links() string {
	var all []string
	for _, one := range f.replicas {
		all = append(all, one.link)
	}
	return strings.Join(all, ",")
}

// storeSize returns the megabytes in the store's folder.
func (f *federation) storeSize() (float64, error) {
	total := int64(0)
	err := filepath.WalkDir(f.data, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measuring the hub's store: %w", err)
	}
	return float64(total) / 1e6, nil
}

// addReplica prepares a process of the hub.
func (b *bench) addReplica(f *federation, name string, args []string, adjust func(*program)) error {
	at, err := ports.Free(4)
	if err != nil {
		return err
	}
	r := replica{public: at[0], program: &program{
		path: filepath.Join(b.binDir, "atoll-hub"), link: at[1], log: filepath.Join(b.logDir(), name+".log"), args: append([]string{
			"--listen", at[0], "--link-listen", at[1], "--metrics-listen", at[2], "--health-listen", at[3],
			"--tls-cert-file", f.site.hub.Cert, "--tls-key-file", f.site.hub.Key, "--tls-ca-file", f.site.hub.CA,
		}, args...),
	}}
	if r.conn, err = grpc.NewClient(at[0], grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return fmt.Errorf("preparing to call a hub: %w", err)
	}
	r.clusters = sandboxv1.NewClustersClient(r.conn)
	if adjust != nil {
		adjust(r.program)
	}
	f.replicas = append(f.replicas, r)
	f.hub = f.replicas[0].program
	return nil
}

// call prepares calls to the replicas, to each in turn.
func (f *federation) call() (err error) {
	all := manual.NewBuilderWithScheme("replicas")
	var state resolver.State
	for _, one := range f.replicas {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: one.public}}})
	}
	all.InitialState(state)
	if f.conn, err = grpc.NewClient(all.Scheme()+":///", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(all),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`)); err != nil {
		return fmt.Errorf("preparing to call the hub: %w", err)
	}
	f.SandboxesClient, f.clusters = sandboxv1.NewSandboxesClient(f.conn), sandboxv1.NewClustersClient(f.conn)
	f.envs = sandboxv1.NewEnvsClient(f.conn)
	return nil
}

// federate starts a hub and one worker for each cluster of a world. adjust may change a worker's options.
func (b *bench) federate(ctx context.Context, name string, w crowd.World, adjust func(cluster int, o *crowd.Options)) (*federation, error) {
	f, err := b.startHubs(ctx, name, 1, nil)
	if err != nil {
		return nil, err
	}
	if f.crowd, err = f.site.gather(ctx, w, f.hub.link, adjust); err != nil {
		return nil, errors.Join(err, f.close())
	}
	if err := f.fresh(ctx, w.Clusters); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// gather starts the workers of a world.
func (s *site) gather(ctx context.Context, w crowd.World, hub string, adjust func(cluster int, o *crowd.Options)) (*crowd.Crowd, error) {
	return crowd.Gather(ctx, w, s.credentials(w, hub, adjust))
}

// credentials returns the options of a world's workers.
func (s *site) credentials(w crowd.World, hub string, adjust func(cluster int, o *crowd.Options)) func(int) (crowd.Options, error) {
	return func(cluster int) (crowd.Options, error) {
		files, err := s.authority.Cluster(w.ID(cluster))
		if err != nil {
			return crowd.Options{}, err
		}
		credentials, err := link.LoadCredentials(files, logr.Discard())
		o := crowd.Options{Hub: hub, Credentials: credentials}
		if adjust != nil {
			adjust(cluster, &o)
		}
		return o, err
	}
}

func (f *federation) close() error {
	var errs []error
	if f.crowd != nil {
		errs = append(errs, f.crowd.Stop())
	}
	for _, one := range f.replicas {
		errs = append(errs, one.conn.Close(), one.kill())
	}
	if f.etcd != nil {
		errs = append(errs, f.etcd.kill())
	}
	return errors.Join(append(errs, f.conn.Close())...)
}

// fresh waits until n clusters are healthy for the hub, and then until it settles.
func (f *federation) fresh(ctx context.Context, n int) error {
	err := wait.Until(ctx, patience, fmt.Sprintf("%d clusters to be fresh", n), func(ctx context.Context) error {
		list, err := f.clusters.ListClusters(ctx, &sandboxv1.ListClustersRequest{}, grpc.WaitForReady(true))
		count := 0
		for _, cluster := range list.GetClusters() {
			if cluster.GetState() == sandboxv1.ClusterState_FRESH {
				count++
			}
		}
		return wait.If(count >= n, fmt.Sprintf("%d, %v", count, err))
	})
	load.Sleep(ctx, settleTime)
	return err
}

var errWrong = errors.New("the response is not what was asked for")

// claim takes a sandbox of a cluster's first Env.
func (f *federation) claim(ctx context.Context, cluster int, key string) error {
	_, err := f.create(ctx, &sandboxv1.CreateSandboxRequest{Env: f.crowd.World.Env(cluster, 0), ClaimKey: key})
	return err
}

func (f *federation) create(ctx context.Context, request *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	sandbox, err := f.CreateSandbox(ctx, request)
	switch {
	case err != nil:
		return nil, err
	case sandbox.GetEnv() != request.GetEnv() || sandbox.GetPhase() != sandboxv1.Phase_RUNNING ||
		sandbox.GetClaimKey() != request.GetClaimKey():
		return nil, fmt.Errorf("%w: %v", errWrong, sandbox)
	default:
		return sandbox, nil
	}
}
