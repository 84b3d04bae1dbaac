// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/catalog"
	"navix.sh/atoll/hub/internal/kubecatalog"
	"navix.sh/atoll/pkg/kubeaccess"
)

// The places where the catalogue is written.
const (
	catalogAPI        = "api"
	catalogKubernetes = "kubernetes"
)

type catalogOptions struct{ from, kubeconfig string }

func (o *catalogOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.from, "catalog", catalogAPI,
		"where platform teams write SandboxEnvs and SandboxTemplates for all clusters: api, or kubernetes, as objects in the hub's own cluster; "+
			"say the same at every replica")
	flags.StringVar(&o.kubeconfig, "catalog-kubeconfig", "",
		"kubeconfig of the cluster that --catalog kubernetes reads; default: the ServiceAccount of the Pod this runs in")
}

func (o *catalogOptions) validate() error {
	switch {
	case o.from != catalogAPI && o.from != catalogKubernetes:
		return fmt.Errorf("--catalog: %q is not valid, want %s or %s", o.from, catalogAPI, catalogKubernetes)
	case o.from == catalogAPI && o.kubeconfig != "":
		return fmt.Errorf("--catalog-kubeconfig: %q is not valid without --catalog %s", o.kubeconfig, catalogKubernetes)
	}
	return nil
}

func (h *hub) buildCatalog(ctx context.Context, o *catalogOptions, real clock.WithTicker, reaching reaching) (err error) {
	options := catalog.Options{
		Store: h.registryStore, Fleet: h.fleet, Calls: reaching, Connected: h.workers.Connected, Clock: real, Log: h.log.WithName("catalog"),
		ClaimCounts: catalog.NewClaimCounts(real),
	}
	h.claims.OnSent(options.ClaimCounts.Sent)
	var source *kubecatalog.Source
	if o.from == catalogKubernetes {
		klog.SetLogger(h.log.WithName("kubernetes"))
		config, err := kubeaccess.Config(o.kubeconfig)
		if err != nil {
			return fmt.Errorf("--catalog %s: %s: %w", catalogKubernetes, cmp.Or(o.kubeconfig, "not in a Pod"), err)
		}
		if source, err = kubecatalog.New(kubecatalog.Options{
			Config: config, Registration: h.fleet.Registration, Store: h.registryStore, Clock: real, Log: h.log.WithName("catalog"),
		}); err != nil {
			return err
		}
		options.Source = source
		h.background = append(h.background, source)
	}
	if h.catalog, err = catalog.New(ctx, options); err == nil && source != nil {
		source.Serve(h.catalog)
	}
	return err
}
