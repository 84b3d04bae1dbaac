// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"navix.sh/atoll/worker/internal/controllers"
)

// ClusterIDLabel on a provider's object is the id of its cluster. Without it, the id is the object's name.
const ClusterIDLabel = "agentbox.navix.sh/cluster-id"

// kubeconfigs watches the kubeconfig Secrets of a namespace, with the label and the key of the module's provider. The module's provider
// ends a cluster before it reads the changed Secret, and waits for each cluster.
type kubeconfigs struct {
	followed

	ctx      context.Context // of the engagements
	host     multicluster.Aware
	cached   client.Reader
	log      logr.Logger
	reported map[string]string // errors by Secret; only Reconcile uses it
}

// Kubeconfigs runs the provider of kubeconfig Secrets of a namespace, until ctx ends.
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
	k := &kubeconfigs{ctx: ctx, host: host, cached: local.GetClient(), log: log, reported: map[string]string{}}
	err = ctrl.NewControllerManagedBy(local).Named("kubeconfigs").For(&corev1.Secret{}).
		WithOptions(controllers.Options(1, lastRetry)).
		Complete(k)
	if err != nil {
		return fmt.Errorf("adding the controller of kubeconfig Secrets: %w", err)
	}
	return local.Start(ctx)
}

var errNoKubeconfig = errors.New("the Secret has no key " + kubeconfig.DefaultKubeconfigSecretKey)

// Reconcile implements reconcile.Reconciler. An invalid Secret leaves the cluster as it was (I5), and is reported once. Reconcile never
// waits for a cluster (I7).
func (k *kubeconfigs) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	name, secret := multicluster.ClusterName(request.Name), &corev1.Secret{}
	err := k.cached.Get(ctx, request.NamespacedName, secret)
	if apierrors.IsNotFound(err) || err == nil && !secret.DeletionTimestamp.IsZero() {
		k.end(name)
		delete(k.reported, request.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading Secret %s: %w", request.NamespacedName, err)
	}
	err = errNoKubeconfig
	if data := secret.Data[kubeconfig.DefaultKubeconfigSecretKey]; len(data) > 0 {
		err = k.take(k.ctx, k.host, name, data)
	}
	if err == nil {
		delete(k.reported, request.Name)
		return reconcile.Result{}, nil
	}
	if k.reported[request.Name] != err.Error() {
		k.reported[request.Name] = err.Error()
		k.log.Error(err, "Cannot serve the cluster of a Secret", "secret", request.NamespacedName)
	}
	// It may wait for the end of another cluster, which causes no event for this one.
	return reconcile.Result{RequeueAfter: lastRetry}, nil
}

// LabelledID returns a function that returns the cluster id of a provider's object: its label, else its name.
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
