// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"
)

// ClusterIDLabel on a provider's object is the id of its cluster; without it the object's name is.
const ClusterIDLabel = "agentbox.navix.sh/cluster-id"

// onHost is as much of a multicluster manager as a provider uses. The module's own passes each cluster to its components one after the
// other, and ends when one of them fails.
type onHost struct {
	mcmanager.Manager
	local manager.Manager
	host  multicluster.Aware
}

func (o onHost) GetLocalManager() manager.Manager { return o.local }

func (o onHost) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	return o.host.Engage(ctx, name, cl)
}

// Kubeconfigs runs the module's provider of kubeconfig Secrets of a namespace, until ctx ends.
func Kubeconfigs(ctx context.Context, cfg *rest.Config, namespace string, host multicluster.Aware, log logr.Logger) error {
	labelled := labels.SelectorFromSet(labels.Set{kubeconfig.DefaultKubeconfigSecretLabel: "true"})
	local, err := ctrl.NewManager(cfg, ctrl.Options{
		Logger: log, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: labelled}},
		},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return fmt.Errorf("building the manager of kubeconfig Secrets: %w", err)
	}
	provider := kubeconfig.New(kubeconfig.Options{
		Namespace:   namespace,
		RESTOptions: []func(*rest.Config) error{checkConfig},
	})
	if err := provider.SetupWithManager(ctx, onHost{local: local, host: host}); err != nil {
		return fmt.Errorf("adding the provider of kubeconfig Secrets: %w", err)
	}
	return local.Start(ctx)
}

// checkConfig refuses what runs a program, or reads a file, of this process.
func checkConfig(cfg *rest.Config) error {
	switch {
	case cfg.ExecProvider != nil || cfg.AuthProvider != nil:
		return errors.New("the kubeconfig has exec or auth-provider, which run programs here; want a token or a certificate")
	case cfg.BearerTokenFile != "" || cfg.CertFile != "" || cfg.KeyFile != "" || cfg.CAFile != "":
		return errors.New("the kubeconfig names files, which would be read here; want the data themselves")
	}
	return nil
}

// LabelledID returns the cluster id of a provider's object: its label's, else its name.
func LabelledID(c client.Reader, kind schema.GroupVersionKind, namespace string) func(context.Context, string) (string, error) {
	return func(ctx context.Context, name string) (string, error) {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
			return "", fmt.Errorf("reading the %s: %w", kind.Kind, err)
		}
		if id := object.Labels[ClusterIDLabel]; id != "" {
			return id, nil
		}
		return name, nil
	}
}
