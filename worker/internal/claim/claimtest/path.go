// SPDX-License-Identifier: Apache-2.0

// Package claimtest assembles the claim path for tests.
package claimtest

import (
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/history/historytest"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// Claims and Sandboxes name the services that Path embeds.
type (
	Claims    = claim.Service
	Sandboxes = sandboxes.Service
)

// Path is the inventory and the services on it.
type Path struct {
	*inventory.Inventory
	*Sandboxes
	*Claims
}

// Lease is held until a test sets Lost.
type Lease struct{ Lost atomic.Bool }

// Held reports whether the lease is held.
func (l *Lease) Held() bool { return !l.Lost.Load() }

// Options are the options of the parts. New sets the required ones.
type Options struct {
	Inventory inventory.Options
	Sandboxes sandboxes.Options
	Claims    claim.Options
}

// New returns a path whose claims use connections of cfg.
func New(t testing.TB, cfg *rest.Config, clusterID string, change ...func(*Options)) Path {
	t.Helper()
	o := Options{Inventory: inventory.Options{ClusterID: clusterID, Lease: &Lease{}}}
	for _, f := range change {
		f(&o)
	}
	if o.Inventory.Time == nil {
		o.Inventory.Time = apitime.New(clock.RealClock{})
		o.Inventory.Time.Watch(cfg)
	}
	if o.Sandboxes.History == nil {
		o.Sandboxes.History = historytest.New(t, o.Inventory.Time)
	}
	var p Path
	var err error
	if o.Inventory.Client, err = inventory.NewClient(cfg); err == nil {
		p.Inventory, err = inventory.New(o.Inventory)
	}
	if err == nil {
		p.Sandboxes, err = sandboxes.New(p.Inventory, o.Sandboxes)
	}
	if err == nil {
		p.Claims, err = claim.New(p.Inventory, p.Sandboxes, o.Claims)
	}
	must.Succeed(t, err)
	return p
}

// Via makes a leader's requests go through trip, which may pass them on to next.
func Via(trip func(r *http.Request, next http.RoundTripper) (*http.Response, error)) func(*Options, *rest.Config) {
	return func(_ *Options, cfg *rest.Config) {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(r *http.Request) (*http.Response, error) { return trip(r, next) })
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// InFlight returns how many calls are under way (I10).
func (p Path) InFlight() int { return p.Claims.InFlight() + p.Sandboxes.InFlight() }
