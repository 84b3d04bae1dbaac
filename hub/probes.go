// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/store"
)

// maxScrapes is how many responses of /metrics are built at a time.
const maxScrapes = 4

// probes serve operators: metrics and health.
type probes struct {
	metrics http.Handler
	store   store.Store
	ending  atomic.Bool
}

func newProbes(registry registry, s store.Store) *probes {
	return &probes{metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry, MaxRequestsInFlight: maxScrapes}), store: s}
}

func (p *probes) serveMetrics(ctx context.Context, lis net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.metrics)
	return serve.Plain(ctx, lis, mux)
}

func (p *probes) serveHealth(ctx context.Context, lis net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := p.ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return serve.Plain(ctx, lis, mux)
}

// ready does not require workers; because a hub without any still shows and releases sandboxes and returns the state of claims.
func (p *probes) ready(ctx context.Context) error {
	if p.ending.Load() {
		return errors.New("ending")
	}
	if _, _, err := p.store.Get(ctx, "probe"); err != nil {
		return fmt.Errorf("the store does not answer: %w", err)
	}
	return nil
}
