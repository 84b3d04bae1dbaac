// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"navix.sh/atoll/pkg/serve"
)

const (
	// off is the address of a server that is disabled.
	off = "0"
	// maxScrapes is how many responses of /metrics are computed concurrently.
	maxScrapes = 4
	// probeDrain is how long a probe or a scrape may continue when the worker ends.
	probeDrain = 2 * time.Second
)

// probed is a manager whose metrics and health are served by package serve, because the manager's own servers have no bounds (I14).
type probed struct {
	ctrl.Manager
	reader      client.Reader
	live, ready map[string]healthz.Checker
}

// GetAPIReader returns the live reader of the served namespaces.
func (p *probed) GetAPIReader() client.Reader { return p.reader }

// AddHealthzCheck adds a check of /livez.
func (p *probed) AddHealthzCheck(name string, check healthz.Checker) error {
	p.live[name] = check
	return nil
}

// AddReadyzCheck adds a check of /readyz.
func (p *probed) AddReadyzCheck(name string, check healthz.Checker) error {
	p.ready[name] = check
	return nil
}

// listen opens the addresses. The manager serves on them when it starts.
func (p *probed) listen(ctx context.Context, o listenOptions, gatherer prometheus.Gatherer) error {
	servers, err := probeServers(ctx, o, gatherer, p.live, p.ready)
	if err != nil {
		return err
	}
	for _, s := range servers {
		if err := p.Add(s); err != nil {
			return fmt.Errorf("adding the server of --%s-listen: %w", s.Name, err)
		}
	}
	return nil
}

// probeServers opens the addresses of metrics and health.
func probeServers(
	ctx context.Context, o listenOptions, gatherer prometheus.Gatherer, live, ready map[string]healthz.Checker,
) (servers []*manager.Server, err error) {
	scrape := http.NewServeMux()
	scrape.Handle("/metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	probe := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/livez": live, "/readyz": ready} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		probe.Handle(path, handler)
		probe.Handle(path+"/", handler)
	}
	for _, s := range []struct {
		name, address string
		handler       http.Handler
	}{{"metrics", o.metrics, scrape}, {"health", o.health, probe}} {
		if s.address == off {
			continue
		}
		var config net.ListenConfig
		lis, err := config.Listen(ctx, "tcp", s.address)
		if err != nil {
			return nil, fmt.Errorf("listening for --%s-listen: %w", s.name, err)
		}
		server, bounded := serve.PlainServer(lis, s.handler)
		servers = append(servers, &manager.Server{Name: s.name, Server: server, Listener: bounded, ShutdownTimeout: new(probeDrain)})
	}
	return servers, nil
}
