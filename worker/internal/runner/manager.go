// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/lease"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

// newManager returns a manager whose caches and live lists are limited to the given namespaces, or unlimited if there are none.
func newManager(cfg *rest.Config, namespaces []string, lock *lease.Lock, log logr.Logger) (*probed, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	inner, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                              scheme,
		Logger:                              log,
		Metrics:                             metricsserver.Options{BindAddress: off},
		HealthProbeBindAddress:              off,
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       new(leaseDuration),
		RenewDeadline:                       new(renewDeadline),
		RetryPeriod:                         new(retryPeriod),
		Cache:                               cache.Options{ByObject: sandboxcache.ByObject(), DefaultNamespaces: cached(namespaces)},
		NewCache: func(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
			inner, err := cache.New(cfg, opts)
			if err != nil {
				return nil, fmt.Errorf("building the cache: %w", err)
			}
			return sandboxcache.Only(inner, namespaces), nil
		},
		// The worker's own state is read live, never from a cache.
		Client:    client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}},
		NewClient: newClient,
		// One process may run several workers, in tests one after the other; names need not differ between managers.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	mgr := &probed{Manager: inner, reader: sandboxcache.Within(inner.GetAPIReader(), namespaces), live: map[string]healthz.Checker{},
		ready: map[string]healthz.Checker{}}
	if err := sandboxcache.AddIndexes(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return nil, fmt.Errorf("preparing the cache: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the liveness check: %w", err)
	}
	err = mgr.AddReadyzCheck("caches", func(r *http.Request) error {
		// A follower is ready as well, because it takes over when the leader is gone.
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("adding the readiness check: %w", err)
	}
	return mgr, nil
}

// cached returns the cache's configuration for these namespaces.
func cached(namespaces []string) map[string]cache.Config {
	if len(namespaces) == 0 {
		return nil
	}
	out := map[string]cache.Config{}
	for _, namespace := range namespaces {
		out[namespace] = cache.Config{}
	}
	return out
}
