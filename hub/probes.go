// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/store"
)

// maxScrapes bounds the responses of /metrics that are built at a time.
const maxScrapes = 4

// readyTimeout is shorter than the timeout of a kubelet's probe.
const readyTimeout = 900 * time.Millisecond

// probes serves metrics and health.
type probes struct {
	metrics http.Handler
	store   store.Store
	shared  bool // with other replicas
	// cutOff returns the names of the live replicas that this one cannot reach, and whether it reaches none. While the store does not respond,
	// callers are then better served by another replica. Nil: there are no others.
	cutOff func() (replicas string, alone bool)
	// othersServe reports whether the store responds to another replica, as far as is known. Nil: there are no others.
	othersServe func() bool
	failing     failing
	ending      atomic.Bool
}

// avoidAfter is how long the store must fail for this replica, and respond to others, before this replica becomes unready. It is longer
// than the others take to report that the store fails for all.
const avoidAfter = 20 * time.Second

// failing records since when calls have failed.
type failing struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	since time.Time
}

// note records an outcome, and returns for how long there were only failures.
func (f *failing) note(failed bool) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !failed {
		f.since = time.Time{}
		return 0
	}
	if f.since.IsZero() {
		f.since = f.clock.Now()
	}
	return f.clock.Since(f.since)
}

// now reports whether the last outcome was a failure.
func (f *failing) now() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.since.IsZero()
}

func newProbes(registry registry, s store.Store) *probes {
	_, shared := s.(store.Shared)
	return &probes{metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry, MaxRequestsInFlight: maxScrapes}), store: s,
		shared: shared, failing: failing{clock: clock.RealClock{}}}
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
		replicas, alone := "", false
		if p.cutOff != nil {
			replicas, alone = p.cutOff()
		}
		degraded, err := p.ready(r.Context(), alone)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
		if degraded != nil {
			_, _ = fmt.Fprintf(w, "claims with a key are refused: %v\n", degraded)
		}
		switch {
		case alone:
			_, _ = fmt.Fprintf(w, "no other replica is reachable, although alive: %s\n", replicas)
		case replicas != "":
			_, _ = fmt.Fprintf(w, "not reachable, although alive: %s\n", replicas)
		}
	})
	return serve.Plain(ctx, lis, mux)
}

// ready decides whether the replica is ready. It does not require workers; because a hub without workers still shows and releases sandboxes
// and returns the state of claims. It does not require a quorum of etcd; because everything but claims with a key continues. A replica for
// which alone the store fails is not ready.
func (p *probes) ready(ctx context.Context, alone bool) (degraded, err error) {
	if p.ending.Load() {
		return nil, errors.New("ending")
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	_, _, err = p.store.Get(ctx, "probe")
	lasting := p.failing.note(err != nil)
	switch {
	case err == nil:
		return nil, nil
	case !p.shared || alone:
		return nil, fmt.Errorf("the store does not respond: %w", err)
	case lasting >= avoidAfter && p.othersServe != nil && p.othersServe():
		return nil, fmt.Errorf("the store has not responded for %s, and does to other replicas: %w", lasting.Round(time.Second), err)
	default:
		return err, nil
	}
}
