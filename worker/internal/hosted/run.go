// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/runner"
)

// Flags configure where the clusters come from.
type Flags struct {
	Provider  string // empty if this process is one cluster's worker
	Dir       string
	Namespace string // of the objects; empty: the worker's
	Selector  string
}

// Providers of clusters.
const (
	providerKubeconfig = "kubeconfig"
	providerFile       = "file"
	providerClusterAPI = "cluster-api"
	providerInventory  = "cluster-inventory"
)

// workerAccount is the ServiceAccount of a worker in its cluster. `atollctl cluster rbac` prints its rights.
const workerAccount = "atoll-worker"

// Bind adds the flags.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.Provider, "provider", "",
		"host a worker for each cluster of a provider: "+providerKubeconfig+" (Secrets of --namespace with the label "+
			kubeconfig.DefaultKubeconfigSecretLabel+"=true), "+
			providerClusterAPI+" (Clusters of --provider-namespace, by their Secrets NAME-kubeconfig), "+
			providerInventory+" (ClusterProfiles of --provider-namespace with the access provider "+secretReader+
			", by Secrets of --namespace with the label "+profileLabel+"=NAME) or "+
			providerFile+" (ID"+fileSuffix+" in --provider-dir); the label "+ClusterIDLabel+" of an object, else its name, is the cluster's id; "+
			"--kubeconfig is then of the hosting cluster, and --token-file has "+runner.ClusterField+" for the id")
	flags.StringVar(&f.Dir, "provider-dir", "",
		"directory of kubeconfigs for --provider="+providerFile+"; changes take effect without a restart")
	flags.StringVar(&f.Namespace, "provider-namespace", "",
		"namespace of the objects of --provider="+providerClusterAPI+" and "+providerInventory+"; without it --namespace")
	flags.StringVar(&f.Selector, "provider-selector", "",
		"labels of the objects of --provider="+providerClusterAPI+" and "+providerInventory+" that are served, as NAME=VALUE,…; without it all")
}

// Validate reports all faults of the flags and of o.
func (f *Flags) Validate(o *runner.Options) error {
	var errs []error
	if f.Dir != "" && f.Provider != providerFile {
		errs = append(errs, fmt.Errorf("--provider-dir %q is not valid without --provider=%s", f.Dir, providerFile))
	}
	errs = append(errs, f.validateObjects())
	switch f.Provider {
	case "":
		return errors.Join(append(errs, o.Validate())...)
	case providerKubeconfig, providerClusterAPI, providerInventory:
	case providerFile:
		if f.Dir == "" {
			errs = append(errs, fmt.Errorf("--provider-dir is required with --provider=%s", providerFile))
		}
		if o.NeedsIdentity() && !o.HasIdentityDir() {
			errs = append(errs, fmt.Errorf("--identity-dir is required with --provider=%s and --hub: there is no cluster with Secrets",
				providerFile))
		}
	default:
		errs = append(errs, fmt.Errorf("--provider %q is not valid, want %s, %s, %s or %s", f.Provider, providerKubeconfig, providerClusterAPI,
			providerInventory, providerFile))
	}
	return errors.Join(append(errs, o.ValidateHosting())...)
}

// validateObjects reports the faults of flags about objects.
func (f *Flags) validateObjects() error {
	var errs []error
	if f.Provider != providerClusterAPI && f.Provider != providerInventory {
		for _, given := range []struct{ flag, value string }{{"--provider-namespace", f.Namespace}, {"--provider-selector", f.Selector}} {
			if given.value != "" {
				errs = append(errs, fmt.Errorf("%s %q is not valid without --provider=%s or %s", given.flag, given.value, providerClusterAPI,
					providerInventory))
			}
		}
		return errors.Join(errs...)
	}
	if f.Namespace != "" {
		for _, fault := range validation.IsDNS1123Label(f.Namespace) {
			errs = append(errs, fmt.Errorf("--provider-namespace %q is not valid: %s", f.Namespace, fault))
		}
	}
	if _, err := labels.Parse(f.Selector); err != nil {
		errs = append(errs, fmt.Errorf("--provider-selector %q is not valid: %w", f.Selector, err))
	}
	return errors.Join(errs...)
}

// objects returns the provider of a kind of objects, or nil if the flags name another provider.
func (f *Flags) objects(hosting *rest.Config, o *runner.Options, log logr.Logger) (*Objects, error) {
	selector, err := labels.Parse(f.Selector)
	if err != nil {
		return nil, fmt.Errorf("reading --provider-selector: %w", err)
	}
	out := &Objects{Config: hosting, Namespace: cmp.Or(f.Namespace, o.Namespace()), Selector: selector, Log: log}
	switch f.Provider {
	case providerClusterAPI:
		out.Secrets = out.Namespace
		out.source = clusterAPI("system:serviceaccount:" + o.Namespace() + ":" + workerAccount)
	case providerInventory:
		out.Secrets = o.Namespace()
		out.source = clusterInventory()
	default:
		return nil, nil
	}
	return out, nil
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
	start, err := f.provider(&opts, o, log.WithName("provider"))
	if err != nil {
		return err
	}
	host := New(opts)
	defer host.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.ServeProbes(ctx, host) })
	if opts.Share != nil {
		group.Go(func() error { return opts.Share.Run(ctx) })
	}
	group.Go(func() error { return start(ctx, host) })
	log.Info("Hosting workers", "provider", f.Provider)
	return group.Wait()
}

// provider returns the function that runs the provider, and completes the options of its host.
func (f *Flags) provider(opts *Options, o runner.Options, log logr.Logger) (func(context.Context, multicluster.Aware) error, error) {
	if f.Provider == providerFile {
		files := &Files{Dir: f.Dir, Clock: opts.Clock, Log: log}
		return files.Start, nil
	}
	hosting, err := o.HostingCluster()
	if err != nil {
		return nil, err
	}
	live, err := client.New(hosting, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("building the client of the hosting cluster: %w", err)
	}
	if !o.HasIdentityDir() {
		opts.Identities = live
	}
	// A restarted replica has another name, because the workers of the old one are gone.
	self := fmt.Sprintf("%.40s-%s", opts.Self, uuid.NewString()[:8])
	opts.Share = NewShare(live, o.Namespace(), self, f.Provider, opts.Clock, opts.Log.WithName("share"))
	objects, err := f.objects(hosting, &o, log)
	if err != nil {
		return nil, err
	}
	if objects != nil {
		opts.Identify = LabelledID(live, objects.kind, objects.Namespace)
		return objects.Start, nil
	}
	opts.Identify = LabelledID(live, corev1.SchemeGroupVersion.WithKind("Secret"), o.Namespace())
	return func(ctx context.Context, host multicluster.Aware) error {
		return Kubeconfigs(ctx, hosting, o.Namespace(), host, log)
	}, nil
}
