// SPDX-License-Identifier: Apache-2.0

package kubecatalog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/catalog"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/store"
)

var own = planetest.New("kubecatalog", plane.Options{}, func(context.Context, *plane.Plane) error { return nil })

func TestMain(m *testing.M) { own.Main(m) }

// site is a hub whose own cluster is a real API server, with clusters east and west; east may be its own.
type site struct {
	*planetest.Place
	*testing.T
	federation *workertest.Federation
	workers    map[string]*workertest.Catalog
	store      store.Store
	catalog    *catalog.Service
	source     *Source
	uid        map[string]string // of clusters
	stop       func()
	calls      *atomic.Int32 // of the last hub to its cluster
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newSite(t *testing.T, eastIsOwn bool) *site {
	t.Helper()
	return newSiteOn(t, eastIsOwn, nil)
}

// newSiteOn is newSite with the store of several replicas.
func newSiteOn(t *testing.T, eastIsOwn bool, shared store.Store) *site {
	t.Helper()
	s := &site{Place: own.Place(t), T: t, federation: workertest.New(t, map[string]int32{"east": 1, "west": 1}), stop: func() {},
		workers: map[string]*workertest.Catalog{}, uid: map[string]string{"east": "uid-east", "west": "uid-west"}}
	if s.store = shared; shared == nil {
		s.store = s.federation.Registry
	}
	for id := range s.uid {
		s.workers[id] = workertest.NewCatalog()
		s.federation.Workers[id].OnCall = s.workers[id].Call
	}
	if eastIsOwn {
		system := &corev1.Namespace{}
		s.Must(s.Live.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, system))
		s.uid["east"] = string(system.UID)
	}
	s.start()
	t.Cleanup(func() {
		env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Name: "shell", Namespace: s.Namespace}}
		_ = s.Live.Delete(context.Background(), env)
		s.Eventually("the test's Env to go", func() error {
			err := s.Live.Get(context.Background(), s.Key("shell"), env)
			if err == nil {
				return errors.New("it is there")
			}
			return client.IgnoreNotFound(err)
		})
		s.stop()
	})
	return s
}

// start runs a hub's catalogue on the store.
func (s *site) start() {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	config := rest.CopyConfig(s.Config())
	var calls atomic.Int32
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/kube-system") {
				calls.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	s.calls = &calls
	s.source, err = New(Options{Config: config, Store: s.store, Clock: clock.RealClock{}, Log: testlog.New(s.T),
		Registration: func(id string) string { return s.uid[id] }})
	s.Must(err)
	s.catalog, err = catalog.New(ctx, catalog.Options{
		Store: s.store, Fleet: s.federation.Fleet, Calls: s.federation, Connected: func(string) bool { return true }, Clock: clock.RealClock{},
		Log: logr.Discard(), Source: s.source,
	})
	s.Must(err)
	s.source.Serve(s.catalog)
	var running sync.WaitGroup
	running.Go(func() { _ = s.catalog.Run(ctx) })
	running.Go(func() { _ = s.source.Run(ctx) })
	s.stop = func() { cancel(); running.Wait() }
}

func (s *site) text(image string) string {
	return fmt.Sprintf(`
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: shell, namespace: %s}
spec:
  templateRef: {name: base}
  mode: WarmPool
  overrides: {image: %q}
  clusters:
    - {clusterID: east, members: [{name: shell-east}]}
    - {clusterID: west, members: [{name: shell-west}]}
`, s.Namespace, image)
}

func (s *site) object(text string) manifest.Object {
	s.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	must.Succeed(s, err)
	o, err := manifest.Parse(data)
	must.Succeed(s, err)
	return o
}

func (s *site) create(text string) {
	s.Helper()
	env := &v1alpha1.SandboxEnv{}
	must.Succeed(s, yaml.UnmarshalStrict([]byte(text), env))
	s.Must(s.Live.Create(s.Context(), env, client.FieldOwner("kubectl-create")))
}

func (s *site) change(change func(*v1alpha1.SandboxEnv)) {
	s.Helper()
	s.Eventually("a change", func() error {
		env := s.Env("shell")
		change(env)
		return s.Live.Update(s.Context(), env, client.FieldOwner("argocd-controller"))
	})
}

func setImage(image string) func(*v1alpha1.SandboxEnv) {
	return func(env *v1alpha1.SandboxEnv) { env.Spec.Overrides.Image = image }
}

// told are the hub's conditions of the Env.
func (s *site) told() string {
	env := &v1alpha1.SandboxEnv{}
	if err := s.Live.Get(s.Context(), s.Key("shell"), env); err != nil {
		return err.Error()
	}
	var out []string
	for _, kind := range ours {
		if c := meta.FindStatusCondition(env.Status.Conditions, kind); c != nil {
			out = append(out, fmt.Sprintf("%s=%s/%s: %s", c.Type, c.Status, c.Reason, c.Message))
			if c.ObservedGeneration != env.Generation || env.Status.ObservedGeneration != env.Generation {
				out = append(out, "of an older generation")
			}
		}
	}
	return strings.Join(out, "; ")
}

func (s *site) wait(what, want string) {
	s.Helper()
	s.Eventually(what, func() error {
		got := s.told()
		return wait.If(strings.HasPrefix(got, want), got+", want "+want)
	})
}

// image is that of the part which a cluster has, "" if it has none.
func (s *site) image(cluster string) string {
	w := s.workers[cluster]
	w.Mu.Lock()
	defer w.Mu.Unlock()
	part := w.Held[manifest.EnvKind+"/"+s.Namespace+"/shell"]
	if part == nil {
		return ""
	}
	o, err := manifest.Parse(part.GetManifest())
	must.Succeed(s, err)
	overrides, _ := o["spec"].(map[string]any)["overrides"].(map[string]any)
	image, _ := overrides["image"].(string)
	return image
}

func (s *site) waitImage(cluster, want string) {
	s.Helper()
	s.Eventually(cluster+" to have "+want, func() error {
		got := s.image(cluster)
		return wait.If(got == want, got)
	})
}

func (s *site) refuse(cluster string, o *federationv1.CatalogOutcome) {
	w := s.workers[cluster]
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.Refuse["shell"] = o
}

func (s *site) admin() context.Context {
	return principal.With(s.Context(), principal.Principal{Name: "ann", AllTeams: true, AllNamespaces: true})
}
