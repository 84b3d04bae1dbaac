// SPDX-License-Identifier: Apache-2.0

package kubecatalog

import (
	"context"
	"fmt"
	"strings"
	"sync"
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
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/hub/internal/catalog"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/store"
)

var own = planetest.New("kubecatalog", plane.Options{}, func(context.Context, *plane.Plane) error { return nil })

func TestMain(m *testing.M) { own.Main(m) }

// worker holds what a cluster was given.
type worker struct {
	mu     sync.Mutex
	held   map[string]*federationv1.CatalogObject
	refuse *federationv1.CatalogOutcome
}

func (w *worker) call(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in, out := d.GetCatalog(), &federationv1.CatalogResult{}
	key := func(o *federationv1.CatalogObject) string { return o.GetNamespace() + "/" + o.GetName() }
	if in.GetMode() == federationv1.CatalogCall_LIST {
		for _, o := range w.held {
			out.Held = append(out.Held, o)
		}
	}
	for i, list := range [][]*federationv1.CatalogObject{in.GetObjects(), in.GetRemoved()} {
		for _, o := range list {
			got := &federationv1.CatalogOutcome{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(),
				State: federationv1.CatalogOutcome_APPLIED}
			switch {
			case w.refuse != nil:
				got.State, got.Reason, got.Message = w.refuse.GetState(), w.refuse.GetReason(), w.refuse.GetMessage()
			case i == 1:
				got.State = federationv1.CatalogOutcome_REMOVED
				delete(w.held, key(o))
			default:
				w.held[key(o)] = o
			}
			out.Outcomes = append(out.Outcomes, got)
		}
	}
	return &federationv1.Answer{Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_Catalog{Catalog: out}}, nil
}

// site is a hub whose own cluster is a real API server, with clusters east and west; east may be its own.
type site struct {
	*planetest.Place
	*testing.T
	federation *workertest.Federation
	workers    map[string]*worker
	store      store.Store
	catalog    *catalog.Service
	source     *Source
	uid        map[string]string // of clusters
	stop       func()
}

func newSite(t *testing.T, eastIsOwn bool) *site {
	t.Helper()
	s := &site{Place: own.Place(t), T: t, federation: workertest.New(t, map[string]int32{"east": 1, "west": 1}), workers: map[string]*worker{},
		uid: map[string]string{"east": "uid-east", "west": "uid-west"}, stop: func() {}}
	s.store = s.federation.Registry
	for id := range s.uid {
		s.workers[id] = &worker{held: map[string]*federationv1.CatalogObject{}}
		s.federation.Workers[id].OnCall = s.workers[id].call
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
			if err := s.Live.Get(context.Background(), s.Key("shell"), env); client.IgnoreNotFound(err) != nil || err == nil {
				return fmt.Errorf("it is there: %v", err)
			}
			return nil
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
	s.source, err = New(Options{Config: rest.CopyConfig(s.Config()), Store: s.store, Clock: clock.RealClock{}, Log: testlog.New(s.T),
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
		if got := s.told(); !strings.HasPrefix(got, want) {
			return fmt.Errorf("the Env has the conditions %s, want %s", got, want)
		}
		return nil
	})
}

// image is that of the part which a cluster has, "" if it has none.
func (s *site) image(cluster string) string {
	w := s.workers[cluster]
	w.mu.Lock()
	defer w.mu.Unlock()
	part := w.held[s.Namespace+"/shell"]
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
		if got := s.image(cluster); got != want {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
}

func (s *site) refuse(cluster string, o *federationv1.CatalogOutcome) {
	w := s.workers[cluster]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = o
}

func (s *site) admin() context.Context {
	return principal.With(s.Context(), principal.Principal{Name: "ann", AllTeams: true, AllNamespaces: true})
}

// What is written in the hub's cluster reaches the clusters; what becomes of it is told there; the API only reads.
func TestTaken(t *testing.T) {
	s := newSite(t, false)
	s.refuse("west", &federationv1.CatalogOutcome{State: federationv1.CatalogOutcome_CONFLICT, Reason: "Conflict", Message: "by kubectl"})
	s.create(s.text("one"))
	s.waitImage("east", "one")
	s.wait("a conflict", "Catalogued=False/Conflict: revision 1: west: Conflict: by kubectl; Stalled=True/Conflict")
	s.refuse("west", nil)
	s.wait("it is taken", "Catalogued=True/Applied: revision 1")
	if got := s.told(); strings.Contains(got, "Stalled") || strings.Contains(got, "Reconciling") {
		t.Errorf("it has still %s", got)
	}
	s.change(setImage("two"))
	s.waitImage("west", "two")
	s.wait("the change", "Catalogued=True/Applied: revision 2")
	revisions, err := s.catalog.ListEnvRevisions(s.admin(), &sandboxv1.ListEnvRevisionsRequest{Namespace: s.Namespace, Name: "shell"})
	must.Succeed(t, err)
	if got := revisions.GetRevisions()[0].GetChangedBy(); got != "argocd-controller" {
		t.Errorf("it was changed by %s", got)
	}

	s.change(func(env *v1alpha1.SandboxEnv) {
		env.Annotations = map[string]string{v1alpha1.CatalogRolloutAnnotationKey: "stages: [[north]]"}
		env.Spec.Overrides.Image = "three"
	})
	s.wait("a refusal", "Catalogued=False/Refused: sandboxenv "+s.Namespace+"/shell: metadata.annotations[agentbox.navix.sh/rollout]: "+
		`stages[0]: "north" is not valid`)
	if got := s.image("west"); got != "two" {
		t.Errorf("west has %s", got)
	}
	s.change(func(env *v1alpha1.SandboxEnv) { env.Annotations = nil })
	s.waitImage("west", "three")

	err = s.catalog.PutEnv(s.admin(), &sandboxv1.PutEnvRequest{Namespace: s.Namespace, Name: "shell"})
	s.expectElsewhere("PUT", err)
	err = s.catalog.DeleteEnv(s.admin(), &sandboxv1.DeleteEnvRequest{Namespace: s.Namespace, Name: "shell"})
	s.expectElsewhere("DELETE", err)
	s.Must(s.Live.Delete(t.Context(), s.Env("shell")))
	s.waitImage("west", "")
	s.waitImage("east", "")
}

func (s *site) expectElsewhere(what string, err error) {
	s.Helper()
	if p := problem.FromError(err); p == nil || p.Reason != problem.Misconfigured || !strings.Contains(p.Message, "change sandboxenv "+s.Namespace+
		"/shell there") {
		s.Errorf("%s: %v", what, err)
	}
}

// I5: what is gone without having been deleted stays, until somebody says so.
func TestI5AbsenceIsNotDeletion(t *testing.T) {
	s := newSite(t, false)
	s.create(s.text("one"))
	s.waitImage("west", "one")
	s.wait("it is taken", "Catalogued=True/Applied")
	s.stop()
	s.change(func(env *v1alpha1.SandboxEnv) { env.Finalizers = nil }) // as a restored etcd does
	s.Must(s.Live.Delete(t.Context(), s.Env("shell")))
	s.start()
	s.marker("first")
	if got := s.image("west"); got != "one" {
		t.Errorf("west has %q", got)
	}
	must.Succeed(t, s.catalog.DeleteEnv(s.admin(), &sandboxv1.DeleteEnvRequest{Namespace: s.Namespace, Name: "shell"}))
	s.waitImage("west", "")

	s.create(s.text("two"))
	s.waitImage("west", "two")
	s.wait("it is taken", "Catalogued=True/Applied")
	s.stop()
	s.Must(s.Live.Delete(t.Context(), s.Env("shell"))) // while the hub is away
	s.start()
	s.waitImage("west", "")
}

// marker makes a template that the hub takes, so that all before it was looked at.
func (s *site) marker(name string) {
	s.Helper()
	template := &v1alpha1.SandboxTemplate{}
	must.Succeed(s, yaml.Unmarshal([]byte(`spec: {template: {spec: {containers: [{name: main, image: busybox}]}}}`), template))
	template.Name = s.Namespace + "-" + name
	s.Must(s.Live.Create(s.Context(), template, client.FieldOwner("kubectl-create")))
	s.Eventually("a template to be taken", func() error {
		s.Must(s.Live.Get(s.Context(), client.ObjectKeyFromObject(template), template))
		if !meta.IsStatusConditionTrue(template.Status.Conditions, v1alpha1.SandboxEnvConditionCatalogued) {
			return fmt.Errorf("it has %v", template.Status)
		}
		return nil
	})
	s.Must(s.Live.Delete(s.Context(), template))
	s.Eventually("the template to go", func() error {
		if err := s.Live.Get(s.Context(), client.ObjectKeyFromObject(template), template); err == nil {
			return fmt.Errorf("it has the finalizers %v", template.Finalizers)
		}
		return nil
	})
}

// I4: an object of an earlier generation is not taken until it changes from there.
func TestI4AnObjectThatWentBack(t *testing.T) {
	s := newSite(t, false)
	s.create(s.text("one"))
	s.wait("it is taken", "Catalogued=True/Applied: revision 1")
	s.change(setImage("two"))
	s.wait("the change", "Catalogued=True/Applied: revision 2")
	env := s.Env("shell")
	s.stop()
	back := catalog.Sourced{UID: string(env.UID), Generation: 1, By: "kubectl", Manifest: s.object(s.text("one"))}
	for range 2 {
		if err := s.catalog.Take(t.Context(), back); err == nil || !strings.Contains(err.Error(), "restored") {
			t.Errorf("what went back is taken: %v", err)
		}
	}
	back.Generation, back.Manifest = 2, s.object(s.text("three"))
	must.Succeed(t, s.catalog.Take(t.Context(), back))
	s.start()
}

// I3: the hub's own cluster has the object itself: nothing is delivered there, and the user's object keeps its one writer.
func TestI3TheHubsOwnCluster(t *testing.T) {
	s := newSite(t, true)
	s.create(s.text("one"))
	s.waitImage("west", "one")
	s.wait("both have it", "Catalogued=True/Applied: revision 1")
	s.change(setImage("two"))
	s.waitImage("west", "two")
	s.wait("both have the change", "Catalogued=True/Applied: revision 2")
	if got := s.image("east"); got != "" {
		t.Errorf("the hub's own cluster was given %s", got)
	}
	for _, f := range s.Env("shell").ManagedFields {
		if strings.HasPrefix(f.Manager, "atoll-") && strings.Contains(f.FieldsV1.GetRawString(), `"f:spec"`) {
			t.Errorf("%s owns %s", f.Manager, f.FieldsV1.GetRawString())
		}
	}
	s.change(func(env *v1alpha1.SandboxEnv) {
		env.Annotations = map[string]string{v1alpha1.CatalogRolloutAnnotationKey: "stages: [[west], [east]]"}
	})
	s.wait("a plan that it cannot keep", "Catalogued=False/Refused: sandboxenv "+s.Namespace+`/shell: stages[1]: "east" is not valid`)
}

// What a catalogue has delivered is no source, and gets no finalizer.
func TestWhatIsDeliveredIsNoSource(t *testing.T) {
	s := newSite(t, false)
	env := &v1alpha1.SandboxEnv{}
	must.Succeed(t, yaml.Unmarshal([]byte(s.text("one")), env))
	env.Annotations = map[string]string{v1alpha1.CatalogAnnotationKey: "another/7"}
	s.Must(s.Live.Create(t.Context(), env, client.FieldOwner("atoll-catalog")))
	s.marker("delivered")
	if got := s.Env("shell"); len(got.Finalizers) > 0 || len(got.Status.Conditions) > 0 || s.image("west") != "" {
		t.Errorf("it was taken: %v, %v, west has %s", got.Finalizers, got.Status, s.image("west"))
	}
	if entry, err := s.catalog.Entry(s.admin(), segment.Key{Namespace: s.Namespace, Name: "shell"}, false); err != nil || entry != nil {
		t.Errorf("the catalogue has %v, %v", entry, err)
	}
}
