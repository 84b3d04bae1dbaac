// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

// site is a folder with what hubs and simulated workers need: a CA, certificates, and data on one disk.
type site struct {
	dir       string
	authority *pki.Authority
	hub       link.Files
}

func newSite() (*site, error) {
	dir, err := os.MkdirTemp("", "atoll-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the bench: %w", err)
	}
	s := &site{dir: dir}
	if s.authority, err = pki.New(filepath.Join(dir, "pki")); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if s.hub, err = s.authority.Hub("127.0.0.1"); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *site) close() error { return os.RemoveAll(s.dir) }

// credentials issues a certificate for a cluster.
func (s *site) credentials(cluster string) (*link.Credentials, error) {
	files, err := s.authority.Cluster(cluster)
	if err != nil {
		return nil, err
	}
	return link.LoadCredentials(files, logr.Discard())
}

// program is a child process that listens. It can be killed and started again at the same address.
type program struct {
	path   string
	args   []string
	link   string // address for workers
	health string // address of /readyz; empty: ready when it accepts connections
	log    string

	cmd *exec.Cmd
}

// hubProgram is a real hub, with its data in a folder of that name.
func (s *site) hubProgram(binDir, logDir, name string) (*program, string, error) {
	addresses, err := freeAddresses(4)
	if err != nil {
		return nil, "", err
	}
	path, err := filepath.Abs(filepath.Join(binDir, "atoll-hub"))
	if err != nil {
		return nil, "", fmt.Errorf("finding the hub: %w", err)
	}
	return &program{path: path, link: addresses[1], health: addresses[3], log: filepath.Join(logDir, name+".log"), args: []string{
		"--listen", addresses[0], "--link-listen", addresses[1], "--metrics-listen", addresses[2], "--health-listen", addresses[3],
		"--data-dir", filepath.Join(s.dir, name), "--tls-cert-file", s.hub.Cert, "--tls-key-file", s.hub.Key, "--tls-ca-file", s.hub.CA,
	}}, addresses[0], nil
}

func freeAddresses(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer func() { _ = l.Close() }() // only when all are found, or two might be the same
		out = append(out, l.Addr().String())
	}
	return out, nil
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
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s (`make build` makes it): %w", p.path, err)
	}
	p.cmd = cmd
	return poll(ctx, filepath.Base(p.path)+" to be up, see "+p.log, func(ctx context.Context) (bool, error) {
		conn, err := net.Dial("tcp", p.link)
		if err != nil {
			return false, nil
		}
		_ = conn.Close()
		return p.health == "" || healthy(ctx, p.health), nil
	})
}

func healthy(ctx context.Context, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// kill ends the program as kill -9 does.
func (p *program) kill() error {
	if p.cmd == nil {
		return nil
	}
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // says that it was killed
	p.cmd = nil
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s had ended by itself, see %s", p.path, p.log)
	}
	return err
}

// callers connects to a hub's public API.
type callers struct {
	sandboxv1.SandboxesClient
	sandboxv1.ClustersClient
	conn *grpc.ClientConn
}

func call(address string) (*callers, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("preparing to call the hub: %w", err)
	}
	return &callers{SandboxesClient: sandboxv1.NewSandboxesClient(conn), ClustersClient: sandboxv1.NewClustersClient(conn), conn: conn}, nil
}

// fresh waits until the hub holds n clusters for well.
func (c *callers) fresh(ctx context.Context, n int) error {
	return poll(ctx, fmt.Sprintf("%d clusters to be fresh", n), func(ctx context.Context) (bool, error) {
		list, err := c.ListClusters(ctx, &sandboxv1.ListClustersRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return false, err
		}
		count := 0
		for _, cluster := range list.GetClusters() {
			if cluster.GetState() == sandboxv1.ClusterState_FRESH {
				count++
			}
		}
		return count >= n, nil
	})
}

// settleTime lets a hub that has just been filled come to rest.
const settleTime = time.Second
