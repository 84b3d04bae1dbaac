// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// pollInterval is the time between checks of a starting plane.
const pollInterval = 50 * time.Millisecond

// Plane is one control plane. Its methods may be called concurrently, except that faults are injected one at a time.
type Plane struct {
	// Name as given to Up.
	Name string

	index      int
	dir        string
	logDir     string
	binDir     string
	auditLog   bool
	adopt      func(*exec.Cmd)
	log        *progress
	port       *port
	kubelet    *kubelet
	caPEM      []byte
	admin      *rest.Config
	procs      []*process // in the order of components, then further API servers
	morePorts  []*port    // of these
	kwokStarts int

	down    sync.Once
	downErr error
}

func newPlane(opts Options, log *progress, set *Set, index int, name string) (*Plane, error) {
	p := &Plane{
		Name:     name,
		index:    index,
		dir:      filepath.Join(set.state.dir, name),
		binDir:   set.binDir,
		auditLog: opts.AuditLog,
		adopt:    set.Adopt,
		log:      log,
	}
	p.logDir = filepath.Join(p.dir, "logs")
	if opts.LogDir != "" {
		p.logDir = filepath.Join(opts.LogDir, name)
	}
	for _, dir := range []string{p.dir, p.logDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("creating a plane's directory: %w", err)
		}
	}
	var err error
	if p.port, err = reservePort(); err != nil {
		return nil, err
	}
	if p.kubelet, err = newKubelet(p.file("containers"), opts.Sandboxd, p.adopt); err != nil {
		return nil, errors.Join(err, p.port.release())
	}
	p.procs = p.components()
	return p, nil
}

func (p *Plane) up(ctx context.Context, opts Options) error {
	if err := p.configure(opts); err != nil {
		return err
	}
	for _, proc := range p.procs[:2] {
		if err := proc.start(); err != nil {
			return err
		}
	}
	if err := p.waitReady(ctx); err != nil {
		return err
	}
	// The others exit without an API server, so they start after it.
	for _, proc := range p.procs[2:] {
		if err := proc.start(); err != nil {
			return err
		}
	}
	return p.seed(ctx, opts)
}

// configure writes the components' configuration files.
func (p *Plane) configure(opts Options) error {
	ca, err := writePKI(p.dir, p.Name, p.server())
	if err != nil {
		return err
	}
	p.caPEM = ca.certPEM
	if p.admin, err = clientcmd.BuildConfigFromFlags("", p.Kubeconfig()); err != nil {
		return fmt.Errorf("reading back a kubeconfig: %w", err)
	}
	// The default client limit is 5 requests a second; tests should wait only for the server.
	p.admin.QPS, p.admin.Burst = 1000, 2000
	if p.kubelet.pods, err = kubernetes.NewForConfig(p.Config()); err != nil {
		return fmt.Errorf("building a kubelet's client: %w", err)
	}
	if err := p.kubelet.serve(p.file("kubelet.crt"), p.file("kubelet.key"), p.caPEM); err != nil {
		return err
	}
	stages, err := kwokConfig(opts.Delays, p.kubelet.port())
	if err != nil {
		return err
	}
	for file, content := range map[string][]byte{"audit-policy.yaml": []byte(auditPolicy), "kwok.yaml": stages} {
		if err := os.WriteFile(p.file(file), content, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", file, err)
		}
	}
	return nil
}

func (p *Plane) server() string { return fmt.Sprintf("https://127.0.0.1:%d", p.port.number) }

// Kubeconfig is the path of the cluster administrator's kubeconfig.
func (p *Plane) Kubeconfig() string { return p.file("admin.kubeconfig") }

// Config returns a new client configuration for the cluster administrator.
func (p *Plane) Config() *rest.Config { return rest.CopyConfig(p.admin) }

// waitReady waits until the API server reports ready.
func (p *Plane) waitReady(ctx context.Context) error { return p.waitReadyAt(ctx, p.Config()) }

func (p *Plane) waitReadyAt(ctx context.Context, config *rest.Config) error {
	// Each try has its own deadline: a server that accepts and never responds would use up the whole time.
	config.Timeout = time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	return p.poll(ctx, "the API server to be ready", func(ctx context.Context) error {
		var code int
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&code).Raw()
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("/readyz: %d: %s", code, body)
		}
		return err
	})
}

// poll tries until there is no error. It fails when ctx ends or a component keeps ending; the error has the last failure, and
// the end of the components' logs.
func (p *Plane) poll(ctx context.Context, what string, try func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	before := make([]int, len(p.procs))
	for i, proc := range p.procs {
		before[i] = proc.endings()
	}
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		for i, proc := range p.procs {
			if proc.endings()-before[i] >= maxEnds {
				return fmt.Errorf("waiting for %s: %s keeps ending: %w\n%s", what, proc.name, err, proc.lastWords())
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %w\n%s", what, context.Cause(ctx), err, p.lastWords())
		case <-ticker.C:
		}
	}
}

func (p *Plane) lastWords() string {
	var words strings.Builder
	for _, proc := range p.procs {
		fmt.Fprintf(&words, "--- %s\n%s\n", proc.name, proc.lastWords())
	}
	return words.String()
}

func (p *Plane) etcd() *process { return p.procs[0] }

func (p *Plane) apiServer() *process { return p.procs[1] }

func (p *Plane) kwok() *process { return p.procs[4] }

// Pause freezes the API server: connections are accepted and kept, and get no response.
func (p *Plane) Pause() error {
	if err := p.apiServer().signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.apiServer().waitStopped()
}

// Resume ends Pause.
func (p *Plane) Resume() error {
	if err := p.apiServer().signal(syscall.SIGCONT); err != nil {
		return err
	}
	return p.restartKwok()
}

// StopAPIServer kills the API server, as a crash would: connections are reset, new ones refused.
func (p *Plane) StopAPIServer() { p.apiServer().stop() }

// StartAPIServer restarts it on the same port with the same state, and waits until it is ready.
func (p *Plane) StartAPIServer(ctx context.Context) error {
	if err := p.apiServer().start(); err != nil {
		return err
	}
	if err := p.waitReady(ctx); err != nil {
		return err
	}
	return p.restartKwok()
}

// restartKwok makes kwok process every Pod again; because after an interrupted write it ignores a Pod until its next change. A
// kubelet would not.
func (p *Plane) restartKwok() error {
	p.kwok().stop()
	p.kwok().args = p.kwokArgs()
	return p.kwok().start()
}

// Down kills the plane and removes its files. The rest of its set keeps running. A second call returns the first result.
func (p *Plane) Down() error {
	p.down.Do(func() {
		// The API server and its clients first, etcd last, so that kept logs end without errors.
		for i := len(p.procs) - 1; i >= 0; i-- {
			p.procs[i].stop()
		}
		p.kubelet.close()
		p.downErr = errors.Join(os.RemoveAll(p.dir), p.port.release())
		for _, port := range p.morePorts {
			p.downErr = errors.Join(p.downErr, port.release())
		}
	})
	return p.downErr
}
