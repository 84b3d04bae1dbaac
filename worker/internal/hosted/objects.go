// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/worker/internal/controllers"
)

// Objects is a Provider of the clusters that objects of one kind describe, in one namespace of the hosting cluster. An invalid object is
// reported in the log and by an Event, and leaves the cluster as it was (I5).
type Objects struct {
	Config    *rest.Config // of the hosting cluster
	Namespace string       // of the objects
	// Selector selects the objects; nil selects all.
	Selector labels.Selector
	// Secrets is the namespace of the credentials.
	Secrets string
	Log     logr.Logger

	source
	followed

	ctx      context.Context // of the engagements
	host     multicluster.Aware
	cached   client.Reader
	live     client.Reader
	events   events.EventRecorder
	reported map[string]string // errors by object; only Reconcile uses it
}

var (
	_ multicluster.Provider         = &Objects{}
	_ multicluster.ProviderRunnable = &Objects{}
	_ reconcile.Reconciler          = &Objects{}
)

// source describes how objects of a kind describe clusters.
type source struct {
	kind schema.GroupVersionKind
	// ownerLabel is the label of a Secret that names the object whose credentials it has.
	ownerLabel string
	// kubeconfig returns the kubeconfig for the cluster of an object. It returns errNotYet if a part is still expected.
	kubeconfig func(object *unstructured.Unstructured, read readSecret) ([]byte, error)
}

// readSecret returns a Secret if its ownerLabel names the object.
type readSecret func(name string) (*corev1.Secret, error)

var (
	errNotYet = errors.New("not yet")
	// errRefused means that only a change of the object or its Secret helps.
	errRefused = errors.New("refused")
)

// Start implements multicluster.ProviderRunnable. It caches no data of Secrets, because the label that Cluster API gives to kubeconfigs is
// also on the keys of CAs. A watch of their metadata alone would leave a goroutine behind when it ends.
func (o *Objects) Start(ctx context.Context, host multicluster.Aware) error {
	owned, err := labels.NewRequirement(o.ownerLabel, selection.Exists, nil)
	if err != nil {
		return fmt.Errorf("selecting Secrets: %w", err)
	}
	selector := o.Selector
	if selector == nil {
		selector = labels.Everything()
	}
	mgr, err := ctrl.NewManager(o.Config, ctrl.Options{
		Logger: o.Log, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			o.object(): {Namespaces: map[string]cache.Config{o.Namespace: {LabelSelector: selector}}},
			&corev1.Secret{}: {
				Namespaces: map[string]cache.Config{o.Secrets: {LabelSelector: labels.NewSelector().Add(*owned)}}, Transform: withoutData,
			},
		}},
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return fmt.Errorf("building the manager of %ss: %w", o.kind.Kind, err)
	}
	o.ctx, o.host, o.reported = ctx, host, map[string]string{}
	o.cached, o.live, o.events = mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("atoll-hosting")
	owner := func(_ context.Context, secret client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.Namespace, Name: secret.GetLabels()[o.ownerLabel]}}}
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("provider").For(o.object()).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(owner)).
		WithOptions(controllers.Options(1, lastRetry)).
		Complete(o)
	if err != nil {
		return fmt.Errorf("adding the controller of %ss: %w", o.kind.Kind, err)
	}
	return mgr.Start(ctx)
}

// withoutData returns the part of a Secret that the cache keeps.
func withoutData(object any) (any, error) {
	if secret, ok := object.(*corev1.Secret); ok {
		secret.Data = nil
	}
	return object, nil
}

func (o *Objects) object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(o.kind)
	return object
}

// Reconcile implements reconcile.Reconciler. It never waits for a cluster (I7).
func (o *Objects) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	name := multicluster.ClusterName(request.Name)
	object := o.object()
	err := o.cached.Get(ctx, request.NamespacedName, object)
	if apierrors.IsNotFound(err) || err == nil && !object.GetDeletionTimestamp().IsZero() {
		o.end(name)
		delete(o.reported, request.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the %s: %w", o.kind.Kind, err)
	}
	kubeconfig, err := o.kubeconfig(object, func(name string) (*corev1.Secret, error) { return o.secret(ctx, name, object.GetName()) })
	if err == nil {
		err = o.engage(name, kubeconfig)
	}
	switch {
	case err == nil:
		delete(o.reported, request.Name)
		return reconcile.Result{}, nil
	case errors.Is(err, errNotYet), errors.Is(err, errRefused):
		o.reportOnce(object, err)
		// It may wait for the end of another cluster, which causes no event for this one.
		return reconcile.Result{RequeueAfter: lastRetry}, nil
	}
	return reconcile.Result{}, err
}

// engage checks what a kubeconfig from another party names, and engages its cluster.
func (o *Objects) engage(name multicluster.ClusterName, kubeconfig []byte) error {
	loaded, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return fmt.Errorf("%w: reading the kubeconfig: %w", errRefused, err)
	}
	for of, cluster := range loaded.Clusters {
		// Leave the URL out of the message, because it may have a password.
		if server, err := url.Parse(cluster.Server); err != nil || server.Scheme != "https" || server.Host == "" || server.User != nil {
			return fmt.Errorf("%w: the server of cluster %q is not valid, want https://HOST:PORT", errRefused, of)
		}
	}
	if err := o.take(o.ctx, o.host, name, kubeconfig); err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return nil
}

// secret reads a Secret of the object live, because the cache has no data.
func (o *Objects) secret(ctx context.Context, name, object string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := o.live.Get(ctx, client.ObjectKey{Namespace: o.Secrets, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: there is no Secret %s/%s", errNotYet, o.Secrets, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", o.Secrets, name, err)
	}
	if secret.Labels[o.ownerLabel] != object {
		return nil, fmt.Errorf("%w: Secret %s/%s is not of this %s, want the label %s=%s", errRefused, o.Secrets, name, o.kind.Kind, o.ownerLabel,
			object)
	}
	return secret, nil
}

// reportOnce reports an error once.
func (o *Objects) reportOnce(object *unstructured.Unstructured, err error) {
	if o.reported[object.GetName()] == err.Error() {
		return
	}
	o.reported[object.GetName()] = err.Error()
	log := o.Log.WithValues("kind", o.kind.Kind, "object", object.GetName())
	if errors.Is(err, errNotYet) {
		log.Info("A cluster is not served yet", "reason", err.Error())
		return
	}
	log.Error(err, "Cannot serve the cluster of an object")
	o.events.Eventf(object, nil, corev1.EventTypeWarning, "NotServed", "Engage", "%s", clip.Text(err.Error(), 1000))
}
