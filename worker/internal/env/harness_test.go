// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/e2e/testlog"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const (
	// restTime is how long no write must happen at rest.
	restTime = time.Second
	// local is the cluster id of the Reconciler in tests.
	local = "east"
	// worker is the user of the Reconciler, with the permissions of its markers and no others.
	worker = "system:serviceaccount:atoll-system:env-test"
	// bareWorker is a worker without the permission for pull secrets.
	bareWorker = worker + "-bare"
)

var plain = planetest.New("env", plane.Options{}, func(ctx context.Context, p *plane.Plane) error { return grant(ctx, p.Config()) })

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // for what has no logger of a test's manager
	plain.Main(m)
}

// grant gives the worker the permissions of the markers in reconcile.go.
func grant(ctx context.Context, cfg *rest.Config) error {
	const group = "agents.navix.sh"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "env-test"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{"sandboxenvs"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{group}, Resources: []string{"sandboxenvs/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{group}, Resources: []string{"sandboxenvs/finalizers"}, Verbs: []string{"update"}},
		{APIGroups: []string{group}, Resources: []string{"sandboxpools"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{group}, Resources: []string{"sandboxtemplates"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"atoll-instance-types"},
			Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}}
	secrets := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "env-test-secrets"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}},
	}}
	bare := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: bareWorker}
	full := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: worker}
	bind := func(role *rbacv1.ClusterRole, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		}
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	for _, object := range []client.Object{role, bind(role, full, bare), secrets, bind(secrets, full)} {
		if err := c.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// world is a namespace on a real control plane with a running Reconciler.
type world struct {
	*planetest.Place
	t          *testing.T
	ctx        context.Context
	stop       func()      // ends the Reconciler
	secretless bool        // it runs as bareWorker
	kept       atomic.Bool // another controller keeps all objects
	reconciler *Reconciler
	writes     *writes
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := newIdleWorld(t)
	w.start()
	return w
}

// newIdleWorld is a world whose Reconciler has not been started.
func newIdleWorld(t *testing.T) *world {
	t.Helper()
	return &world{Place: plain.Place(t), t: t, ctx: t.Context(), writes: &writes{}}
}

// start runs a Reconciler under a manager, as the worker user, until the test or stop ends it.
func (w *world) start() {
	w.t.Helper()
	w.startWith()
}

// startWith is start with admission plugins.
func (w *world) startWith(plugins ...admission.Plugin) {
	w.t.Helper()
	cfg := w.Config()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: worker}
	if w.secretless {
		cfg.Impersonate.UserName = bareWorker
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &writeCounter{next, w.writes} })
	w.stop = w.run(cfg, func(ctx context.Context, mgr ctrl.Manager) error {
		var err error
		w.reconciler, err = New(mgr, Options{
			ClusterID: local, Namespace: w.Namespace, Clock: clock.RealClock{}, Local: clock.RealClock{},
			Admission: admission.New(clock.RealClock{}, plugins...), Registerer: prometheus.NewRegistry(),
			NoPullSecrets: w.secretless, Paused: func(client.Object) bool { return w.kept.Load() },
		})
		if err != nil {
			return err
		}
		return w.reconciler.SetupWithManager(ctx, mgr)
	})
}

// run starts a manager with what setup adds to it, and returns what ends it.
func (w *world) run(cfg *rest.Config, setup func(context.Context, ctrl.Manager) error) (stop func()) {
	t := w.t
	t.Helper()
	ctx := t.Context()
	mgr := w.Manager(cfg, sandboxcache.ByObject(), testlog.New(t))
	w.Must(sandboxcache.AddIndexes(ctx, mgr.GetFieldIndexer(), &v1alpha1.SandboxEnv{}, &v1alpha1.SandboxPool{}))
	w.Must(setup(ctx, mgr))
	stop = w.Run("manager", mgr.Start)
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("cache did not sync")
	}
	return stop
}

// writes are the requests of the Reconciler that change something. all leaves events out.
type writes struct {
	mu       sync.Mutex
	all      []string
	underWay int
	last     time.Time // when the last response came
}

func (w *writes) begin(req *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underWay++
	if !strings.HasPrefix(req.URL.Path, "/apis/events.k8s.io/") {
		w.all = append(w.all, req.Method+" "+req.URL.Path)
	}
}

func (w *writes) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underWay--
	w.last = time.Now()
}

func (w *writes) since(n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all[n:])
}

// awaitRest waits until nothing was written for a while, so that the cache has seen all writes, and returns their number.
func (w *world) awaitRest() (count int) {
	w.t.Helper()
	w.Eventually("rest", func() error {
		w.writes.mu.Lock()
		defer w.writes.mu.Unlock()
		if ago := time.Since(w.writes.last); w.writes.underWay > 0 || ago < restTime {
			return fmt.Errorf("%d writes are under way, the last was %s ago", w.writes.underWay, ago)
		}
		count = len(w.writes.all)
		return nil
	})
	return count
}

type writeCounter struct {
	next   http.RoundTripper
	writes *writes
}

func (c *writeCounter) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		c.writes.begin(req)
		defer c.writes.end()
	}
	return c.next.RoundTrip(req)
}

// fill puts the world's names into a manifest: NS, and TEMPLATE, which is cluster-scoped and so must differ.
func (w *world) fill(manifest string) string {
	return strings.NewReplacer("NS", w.Namespace, "TEMPLATE", w.Namespace+"-template").Replace(manifest)
}

func (w *world) kubectl(stdin string, args ...string) string {
	w.t.Helper()
	for {
		out, err := w.Plane.KubectlInput(w.ctx, strings.NewReader(w.fill(stdin)), append([]string{"-n", w.Namespace}, args...)...)
		if err != nil && strings.Contains(err.Error(), "(Conflict)") {
			continue // replace does not retry when another writer changes the object in between; its user does
		}
		w.Must(err)
		return out
	}
}

// apply is kubectl apply of a manifest.
func (w *world) apply(manifest string, args ...string) {
	w.t.Helper()
	w.kubectl(manifest, append([]string{"apply", "-f", "-"}, args...)...)
}

// doc is an object as a document.
func (w *world) doc(kind, name string) *unstructured.Unstructured {
	w.t.Helper()
	doc := &unstructured.Unstructured{}
	doc.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	w.Must(w.Live.Get(w.ctx, w.Key(name), doc))
	return doc
}

// frozen is the JSON of a local member's metadata and spec.
func (w *world) frozen(env, member string) string {
	w.t.Helper()
	at := envDoc{Unstructured: w.doc("SandboxEnv", env), clusterID: local}.member(member)
	if at == nil {
		w.t.Fatalf("there is no member %s", member)
	}
	return toJSON(map[string]any{"metadata": at.doc["metadata"], "spec": at.doc["spec"]})
}

// loseSnapshots takes an Env's snapshots away, as a restore without its status does.
func (w *world) loseSnapshots(env string) {
	w.t.Helper()
	none := client.RawPatch(types.MergePatchType, []byte(`{"status":{"snapshots":null}}`))
	w.Must(w.Live.Status().Patch(w.ctx, w.doc("SandboxEnv", env), none))
}

// desired is how many replicas an Env has for a local member.
func (w *world) desired(env, member string) int32 {
	w.t.Helper()
	at := envDoc{Unstructured: w.doc("SandboxEnv", env), clusterID: local}.member(member)
	if at == nil {
		w.t.Fatalf("there is no member %s", member)
	}
	n, _ := at.replicas()
	return n
}

func toJSON(value any) string {
	content, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// patchEnv is a write to an Env by some manager.
func (w *world) patchEnv(name, manager string, patchType types.PatchType, body string) error {
	doc := w.doc("SandboxEnv", name)
	return w.Live.Patch(w.ctx, doc, client.RawPatch(patchType, []byte(body)), client.FieldOwner(manager))
}

func (w *world) patchPool(name, body string) {
	w.t.Helper()
	w.Must(w.Live.Patch(w.ctx, w.doc("SandboxPool", name), client.RawPatch(types.MergePatchType, []byte(body)), client.FieldOwner("by-hand")))
}

// awaitCondition waits for a condition that was concluded from the Env's current generation.
func (w *world) awaitCondition(env, conditionType string, status metav1.ConditionStatus, reason v1alpha1.ConditionReason) string {
	w.t.Helper()
	var message string
	w.Eventually(fmt.Sprintf("%s=%s/%s of %s", conditionType, status, reason, env), func() error {
		obj := w.Env(env)
		c := meta.FindStatusCondition(obj.Status.Conditions, conditionType)
		if c == nil || c.Status != status || c.Reason != string(reason) || c.ObservedGeneration != obj.Generation {
			return fmt.Errorf("generation %d, %+v", obj.Generation, c)
		}
		message = c.Message
		return nil
	})
	return message
}

func (w *world) awaitReady(env string) {
	w.t.Helper()
	w.awaitCondition(env, v1alpha1.SandboxEnvConditionReady, metav1.ConditionTrue, v1alpha1.ReasonMembersReady)
}

// event finds an event's note.
func (w *world) event(env string, reason v1alpha1.ConditionReason, note *string) error {
	list := &corev1.EventList{}
	w.Must(w.Live.List(w.ctx, list, client.InNamespace(w.Namespace)))
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == string(reason) && e.InvolvedObject.Name == env {
			*note = e.Message
			return nil
		}
	}
	return fmt.Errorf("not among %d events", len(list.Items))
}

// awaitEvent waits for an event about the Env and returns its note.
func (w *world) awaitEvent(env string, reason v1alpha1.ConditionReason) string {
	w.t.Helper()
	var note string
	w.Eventually(fmt.Sprintf("an event %s about %s", reason, env), func() error { return w.event(env, reason, &note) })
	return note
}
