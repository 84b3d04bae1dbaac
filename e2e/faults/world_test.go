// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/e2e/faults/apiproxy"
	"navix.sh/atoll/e2e/faults/proxy"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/pkg/link/linkfaults"
)

// world is a federation, and every fault that it can be given.
type world struct {
	*stack.Stack
	dir, logDir string
	set         *plane.Set
	hub         *stack.Client
	kube        map[string]client.WithWatch // live, no cache

	// The proxies, by the worker's name: to the hub, to the API server, in front of the API server. callers is before the hub.
	links    map[string]proxies // one to each replica of the hub
	ways     map[string]*proxy.Proxy
	servers  map[string]*apiproxy.Proxy
	callers  *proxy.Proxy
	programs map[string]*program // by cluster, and stack.Hub; of several replicas hub-0 and so on

	mu      sync.Mutex        // of links, ways, servers and seconds
	seconds map[string]string // addresses of second API servers, by cluster
	closers []func() error
}

// proxies are those of a worker to all replicas of the hub.
type proxies []*proxy.Proxy

// Set sets the faults of all.
func (all proxies) Set(f proxy.Faults) {
	for _, p := range all {
		p.Set(f)
	}
}

func newWorld(dir, logDir string) *world {
	return &world{
		dir: dir, logDir: logDir, links: map[string]proxies{}, ways: map[string]*proxy.Proxy{},
		servers: map[string]*apiproxy.Proxy{}, seconds: map[string]string{}, programs: map[string]*program{},
	}
}

// up builds and starts everything.
func (w *world) up(ctx context.Context) (err error) {
	bin := filepath.Join(w.dir, "bin")
	build := func(ctx context.Context) error { return stack.Build(ctx, bin, *racesFlag, "atolltest") }
	if w.set, err = stack.Prepare(ctx, build, plane.Options{}, clusters...); err != nil {
		return err
	}
	w.Stack, err = stack.Start(ctx, w.set, stack.Options{BinDir: bin, LogDir: w.logDir, Hubs: *hubsFlag, Via: w.via, Env: w.env})
	if err != nil {
		return fmt.Errorf("starting hub and workers: %w", err)
	}
	if w.hub, err = w.HubClient(); err != nil {
		return err
	}
	for _, hub := range w.Hubs() {
		w.tend(hub.String(), hub)
	}
	if len(w.Hubs()) == 0 {
		w.tend(stack.Hub, w.Hub)
	}
	if w.kube, err = w.Kubes(); err != nil {
		return err
	}
	for _, id := range clusters {
		w.tend(id, w.Worker(id))
	}
	return w.applyEnv(ctx)
}

// down ends everything, whatever its state.
func (w *world) down(ctx context.Context) error {
	var errs []error
	for i := len(w.closers) - 1; i >= 0; i-- {
		errs = append(errs, w.closers[i]())
	}
	if w.Stack != nil {
		errs = append(errs, w.Close())
	}
	return errors.Join(append(errs, w.set.Down(ctx))...)
}

// via puts a proxy into every connection, and two into those to an API server.
func (w *world) via(c stack.Connection) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	target := c.Address
	if member := w.set.Plane(c.To); member != nil {
		// A second worker has its own API server, as in a cluster with several.
		if strings.Contains(c.From, "+") {
			var err error
			if target, err = w.secondServer(member); err != nil {
				return "", err
			}
		}
		certificate, err := member.ServingCertificate()
		if err != nil {
			return "", err
		}
		server, err := apiproxy.Listen(apiproxy.Options{Target: target, CA: member.Config().CAData, Certificate: certificate, Seed: 1})
		if err != nil {
			return "", err
		}
		w.closers = append(w.closers, server.Close)
		w.servers[c.From], target = server, server.Address()
	}
	p, err := proxy.Listen(target)
	if err != nil {
		return "", err
	}
	w.closers = append(w.closers, p.Close)
	switch c.To {
	case stack.API:
		w.callers = p
	case stack.Link:
		w.links[c.From] = append(w.links[c.From], p)
	default:
		w.ways[c.From] = p
	}
	return p.Address(), nil
}

// secondServer returns the address of a cluster's second API server. The caller holds the lock.
func (w *world) secondServer(member *plane.Plane) (address string, err error) {
	if w.seconds[member.Name] == "" {
		ctx, cancel := context.WithTimeout(context.Background(), startPatience)
		defer cancel()
		if w.seconds[member.Name], err = member.AddAPIServer(ctx); err != nil {
			return "", err
		}
	}
	return w.seconds[member.Name], nil
}

// env gives each program files for its clock and for the faults of its links.
func (w *world) env(name string) []string {
	return []string{"ATOLL_TEST_CLOCK_OFFSET=@" + w.clockFile(name), "ATOLL_TEST_LINK_FAULTS=@" + w.framesFile(name)}
}

func (w *world) clockFile(name string) string { return filepath.Join(w.dir, "clock-"+name) }

func (w *world) framesFile(name string) string { return filepath.Join(w.dir, "frames-"+name) }

// setClock sets a program's clock offset.
func (w *world) setClock(name string, offset time.Duration) error {
	return os.WriteFile(w.clockFile(name), []byte(offset.String()), 0o600)
}

// spoil adds faults to what a program sends over the link.
func (w *world) spoil(name string, seed uint64, rules ...linkfaults.Rule) error {
	return linkfaults.Rules{Seed: seed, Rules: rules}.Write(w.framesFile(name))
}

// names returns the names of all programs.
func names() []string { return append([]string{stack.Hub}, clusters...) }

// calm ends every fault except a program's death.
func (w *world) calm() error {
	var errs []error
	for _, name := range names() {
		errs = append(errs, w.setClock(name, 0), w.spoil(name, 0))
	}
	w.callers.Set(proxy.Faults{})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.links {
		p.Set(proxy.Faults{})
	}
	for _, p := range w.ways {
		p.Set(proxy.Faults{})
	}
	for _, s := range w.servers {
		s.Set()
	}
	return errors.Join(errs...)
}
