// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"

	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/version"
	"navix.sh/atoll/worker/internal/agent"
	"navix.sh/atoll/worker/internal/catalog"
	"navix.sh/atoll/worker/internal/kubeproxy"
	"navix.sh/atoll/worker/internal/podtunnel"
	"navix.sh/atoll/worker/internal/secretenv"
	"navix.sh/atoll/worker/internal/sync"
)

// addTunnels adds the tunnels into sandboxes, for callers of this cluster and of the hub.
func (w *assembly) addTunnels(activity *podtunnel.Activity, secrets *secretenv.Source) (reach.Opener, error) {
	upstream, err := podtunnel.NewAPIServer(w.cfg)
	if err != nil {
		return nil, err
	}
	service, err := podtunnel.New(podtunnel.Options{
		Sandboxes: w.path.sandboxes, Activity: activity, Lease: w.lock, Upstream: upstream, Shares: w.shares, Clock: w.local,
		Secrets: secrets, Log: w.log.WithName("reach"),
	})
	if err != nil {
		return nil, fmt.Errorf("building the way into sandboxes: %w", err)
	}
	if err := w.mgr.Add(service); err != nil {
		return nil, fmt.Errorf("adding the way into sandboxes: %w", err)
	}
	measures, err := reach.NewMetrics(w.registry, "atoll_worker")
	if err != nil {
		return nil, err
	}
	return measures.Measure(service), nil
}

// addAgent adds the link to the hub and the sync path that it feeds.
func (w *assembly) addAgent(ctx context.Context) (err error) {
	opts := agent.Options{
		ClusterID: w.clusterID, Version: version.String(), Host: w.host(), Namespace: w.namespace,
		Services: agent.Services{
			Claims: w.path.claims, Sandboxes: w.path.sandboxes, Reach: w.tunnels, Envs: w.envs, Rooms: w.rooms,
		},
		Inventory: w.path.inventory, Outlooks: w.scaler,
		Paused: w.others.PausedPool, OnPausedChange: w.others.OnChange,
		Clock: w.local, Traces: w.traces, Metrics: w.registry, Log: w.log.WithName("agent"),
	}
	if w.hub.address != "" {
		if err := w.addHub(ctx, &opts); err != nil {
			return err
		}
	}
	if w.agent, err = agent.SetupWithManager(ctx, w.mgr, opts); err != nil {
		return fmt.Errorf("adding the agent: %w", err)
	}
	return nil
}

// +kubebuilder:rbac:groups="",namespace=atoll-system,resources=serviceaccounts/token,resourceNames=atoll-sync;atoll-catalog,verbs=create

// addHub sets up the link, and requests the identity of the sync path, which the worker's own identity is allowed to do.
func (w *assembly) addHub(ctx context.Context, opts *agent.Options) error {
	credentials, err := w.loadCredentials()
	if err != nil {
		return fmt.Errorf("loading the certificate for the hub: %w", err)
	}
	if err := w.checkIdentity(credentials); err != nil {
		return err
	}
	linkMetrics, err := link.NewMetrics(w.registry)
	if err := errors.Join(err, credentials.Register(w.registry), w.registerCause()); err != nil {
		return fmt.Errorf("registering the link's metrics: %w", err)
	}
	opts.Hub = link.Dial{
		Target: w.hub.address, ServerName: w.hub.name, Credentials: credentials, Clock: opts.Clock, Metrics: linkMetrics,
		Log: w.log.WithName("link"),
	}
	if w.issued.identity != nil {
		opts.Identity, opts.Hub.Wake = w.issued.identity, w.issued.identity.Wake()
	}
	syncConfig, err := sync.Config(w.cfg, w.namespace, sync.ServiceAccount)
	if err != nil {
		return fmt.Errorf("taking on the sync path's identity: %w", err)
	}
	syncer, err := sync.New(ctx, sync.Options{
		ClusterID: w.clusterID, Config: syncConfig, Cache: w.mgr.GetCache(), Cause: w.cause, Clock: opts.Clock, Metrics: w.registry,
		Log: w.log.WithName("sync"),
	})
	if err != nil {
		return fmt.Errorf("building the sync path: %w", err)
	}
	if err := w.mgr.Add(syncer); err != nil {
		return fmt.Errorf("adding the sync path: %w", err)
	}
	opts.Foreign = syncer
	if opts.Catalog, err = w.catalogWriter(); err != nil {
		return err
	}
	if w.kubernetes.serve {
		if opts.Kubernetes, err = w.kubeProxy(ctx); err != nil {
			return err
		}
	}
	w.issued.syncer.Store(syncer)
	return nil
}

// kubeProxy returns the proxy that forwards requests of the hub's callers to the API server, under an identity of its own, until ctx ends.
func (w *assembly) kubeProxy(ctx context.Context) (*kubeproxy.Proxy, error) {
	cfg, err := sync.Config(w.cfg, w.namespace, kubeproxy.ServiceAccount)
	if err != nil {
		return nil, fmt.Errorf("taking on the proxy's identity: %w", err)
	}
	proxy, err := kubeproxy.New(kubeproxy.Options{Config: cfg, Prefix: w.kubernetes.prefix, Log: w.log.WithName("kubeproxy")})
	if err != nil {
		return nil, fmt.Errorf("building the proxy to the API server: %w", err)
	}
	context.AfterFunc(ctx, proxy.Close)
	return proxy, nil
}

// catalogWriter returns the writer of this cluster's part of the hub's catalogue. It has an identity of its own.
func (w *assembly) catalogWriter() (agent.Catalog, error) {
	cfg, err := sync.Config(w.cfg, w.namespace, catalog.ServiceAccount)
	if err != nil {
		return nil, fmt.Errorf("taking on the catalogue's identity: %w", err)
	}
	return catalog.New(catalog.Options{ClusterID: w.clusterID, Config: cfg, Namespaces: w.namespaces, Leads: w.lock.Held,
		Time: w.serverTime, Log: w.log.WithName("catalog")})
}
