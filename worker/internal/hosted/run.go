// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/runner"
)

// Flags say where the clusters come from.
type Flags struct {
	Provider string // empty: this process is one cluster's worker
	Dir      string
}

// Providers of clusters.
const (
	providerKubeconfig = "kubeconfig"
	providerFile       = "file"
)

// Bind adds the flags.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.Provider, "provider", "",
		"host a worker for each cluster of a provider: "+providerKubeconfig+" (Secrets of --namespace with the label "+
			"sigs.k8s.io/multicluster-runtime-kubeconfig=true, of which the label "+ClusterIDLabel+", else the name, is the cluster's id) or "+
			providerFile+" (ID"+fileSuffix+" in --provider-dir); --kubeconfig is then of the hosting cluster, and --token-file has "+
			runner.ClusterField+" for the id")
	flags.StringVar(&f.Dir, "provider-dir", "", "directory of kubeconfigs for --provider="+providerFile+"; changes are taken up")
}

// Validate reports all faults, of o as well.
func (f *Flags) Validate(o *runner.Options) error {
	var errs []error
	switch f.Provider {
	case "":
		if f.Dir != "" {
			errs = append(errs, fmt.Errorf("--provider-dir %q is not valid without --provider=%s", f.Dir, providerFile))
		}
		return errors.Join(append(errs, o.Validate())...)
	case providerKubeconfig:
		if f.Dir != "" {
			errs = append(errs, fmt.Errorf("--provider-dir %q is not valid with --provider=%s, want it left out", f.Dir, providerKubeconfig))
		}
	case providerFile:
		if f.Dir == "" {
			errs = append(errs, fmt.Errorf("--provider-dir is required with --provider=%s", providerFile))
		}
		if o.NeedsIdentity() && !o.HasIdentityDir() {
			errs = append(errs, fmt.Errorf("--identity-dir is required with --provider=%s and --hub: there is no cluster with Secrets",
				providerFile))
		}
	default:
		errs = append(errs, fmt.Errorf("--provider %q is not valid, want %s or %s", f.Provider, providerKubeconfig, providerFile))
	}
	return errors.Join(append(errs, o.ValidateHosting())...)
}

// Run hosts workers until ctx ends.
func Run(ctx context.Context, f Flags, o runner.Options, log logr.Logger) error {
	clk, err := wallclock.New()
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("reading host name: %w", err)
	}
	opts := Options{Worker: o, Self: name, Clock: clk, Log: log}
	var hosting *rest.Config
	if f.Provider == providerKubeconfig {
		if hosting, err = o.HostingCluster(); err != nil {
			return err
		}
		live, err := client.New(hosting, client.Options{})
		if err != nil {
			return fmt.Errorf("building the client of the hosting cluster: %w", err)
		}
		opts.Identify = LabelledID(live, o.Namespace())
		if !o.HasIdentityDir() {
			opts.Identities = live
		}
		// A replica that starts anew is another one; because the workers of the old one are gone.
		self := fmt.Sprintf("%.40s-%s", name, uuid.NewString()[:8])
		opts.Share = NewShare(live, o.Namespace(), self, clk, log.WithName("share"))
	}
	host := New(opts)
	defer host.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.ServeProbes(ctx, host) })
	if opts.Share != nil {
		group.Go(func() error { return opts.Share.Run(ctx) })
		group.Go(func() error { return Kubeconfigs(ctx, hosting, o.Namespace(), host, log.WithName("provider")) })
	} else {
		provider := &Files{Dir: f.Dir, Clock: clk, Log: log.WithName("provider")}
		group.Go(func() error { return provider.Start(ctx, host) })
	}
	log.Info("Hosting workers", "provider", f.Provider)
	return group.Wait()
}
