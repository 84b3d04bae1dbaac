// SPDX-License-Identifier: Apache-2.0

package planetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
)

// Place is a namespace of a plane, for one test.
type Place struct {
	Namespace string
	Plane     *plane.Plane
	Live      client.Client // of an administrator, without a cache

	test testing.TB
}

// Place returns a new namespace of the plane, in which Pods can be created.
func (p *Plane) Place(t testing.TB) *Place {
	t.Helper()
	return PlaceOn(t, p.Up(t))
}

// PlaceOn is Place on a plane that runs.
func PlaceOn(t testing.TB, on *plane.Plane) *Place {
	t.Helper()
	w := &Place{Plane: on, test: t}
	var err error
	w.Live, err = client.New(on.Config(), client.Options{Scheme: Scheme(t)})
	w.Must(err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w.Must(w.Live.Create(t.Context(), ns))
	w.Namespace = ns.Name
	w.Eventually("the default service account", func() error {
		return w.Live.Get(t.Context(), w.Key("default"), &corev1.ServiceAccount{})
	})
	return w
}

// Scheme knows the objects of Kubernetes and of Atoll.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	return scheme
}

// Must ends the test if there is an error.
func (p *Place) Must(err error) {
	p.test.Helper()
	if err != nil {
		p.test.Fatal(err)
	}
}

// Eventually waits for an asynchronous result.
func (p *Place) Eventually(what string, try func() error) {
	p.test.Helper()
	Eventually(p.test, what, try)
}

// Key is the name of an object of the namespace.
func (p *Place) Key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: name}
}

// Pool returns a pool that exists.
func (p *Place) Pool(name string) *v1alpha1.SandboxPool {
	p.test.Helper()
	pool := &v1alpha1.SandboxPool{}
	p.Must(p.Live.Get(p.test.Context(), p.Key(name), pool))
	return pool
}

// Env returns an Env that exists.
func (p *Place) Env(name string) *v1alpha1.SandboxEnv {
	p.test.Helper()
	env := &v1alpha1.SandboxEnv{}
	p.Must(p.Live.Get(p.test.Context(), p.Key(name), env))
	return env
}

// Pods returns the Pods of a pool that are not being deleted.
func (p *Place) Pods(pool string) (out []corev1.Pod) {
	p.test.Helper()
	list := &corev1.PodList{}
	p.Must(p.Live.List(p.test.Context(), list, client.InNamespace(p.Namespace), client.MatchingLabels{v1alpha1.SandboxPoolLabelKey: pool}))
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			out = append(out, list.Items[i])
		}
	}
	return out
}

// Config is that of an administrator without a limit of requests.
func (p *Place) Config() *rest.Config {
	cfg := p.Plane.Config()
	cfg.QPS, cfg.Burst = -1, -1
	return cfg
}

// Manager returns a manager whose cache sees the namespace alone.
func (p *Place) Manager(cfg *rest.Config, objects map[client.Object]cache.ByObject, log logr.Logger) ctrl.Manager {
	p.test.Helper()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: Scheme(p.test), Logger: log, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache:      cache.Options{ByObject: objects, DefaultNamespaces: map[string]cache.Config{p.Namespace: {}}},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	p.Must(err)
	return mgr
}

// Run runs what until the test ends, or until the returned function has stopped it.
func (p *Place) Run(what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			p.test.Errorf("%s: %v", what, err)
		}
	})
	p.test.Cleanup(stop)
	return stop
}
