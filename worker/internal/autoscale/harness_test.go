// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/autoscale"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/env"
	"navix.sh/atoll/worker/internal/pool"
	"navix.sh/atoll/worker/internal/replicas"
	"navix.sh/atoll/worker/internal/rooms"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const (
	// patience is how long a test waits for what should take a second or two.
	patience  = 60 * time.Second
	clusterID = "east"
)

var east = planetest.New(clusterID, plane.Options{Delays: plane.Delays{
	Start: 20 * time.Millisecond, StartMax: 50 * time.Millisecond, Pull: 200 * time.Millisecond,
}}, nil)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // for what has no logger of a test's manager
	east.Main(m)
}

// world is a namespace of a real control plane with everything of a worker that handles pools.
type world struct {
	*planetest.Place
	t *testing.T

	// Of the current worker.
	claims  claimtest.Path
	scaler  *autoscale.Reconciler
	rooms   *rooms.Rooms // which the hub would switch on
	stop    func()
	most    atomic.Int32 // replicas that admission allows a pool; 0: all
	nothing atomic.Bool  // admission admits nothing
	refused atomic.Bool  // Pods are refused
	kept    atomic.Bool  // another controller keeps the pools
	asked   atomic.Int32
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Place: east.Place(t), t: t}
	w.start()
	return w
}

// PreUpdatePool is the admission's decision.
func (w *world) PreUpdatePool(_ context.Context, c *admission.Change) (admission.Verdict, error) {
	w.asked.Add(1)
	if w.nothing.Load() {
		return admission.Verdict{Replicas: c.From, Reason: admission.InsufficientResources, Message: "nothing left"}, nil
	}
	if most := w.most.Load(); most > 0 && c.To > most {
		return admission.Verdict{Replicas: c.From, Reason: admission.QuotaExceeded, Message: fmt.Sprintf("no more than %d", most)}, nil
	}
	return admission.Admit(c.To), nil
}

// Ended keeps no records; because the current claim service does.
func (w *world) Ended(ctx context.Context, record *sandboxv1.Sandbox, of sandbox.Claim) error {
	return w.claims.Ended(ctx, record, of)
}

func (w *world) Released(pod types.UID) *sandbox.Termination { return w.claims.Released(pod) }

// start runs a worker's reconcilers and claim service under one manager.
func (w *world) start() {
	t := w.t
	t.Helper()
	cfg := w.Config()
	times := apitime.New(clock.RealClock{})
	times.Watch(cfg)
	mgr := w.Manager(cfg, sandboxcache.ByObject(), logr.Discard())
	ctx := t.Context()
	w.Must(sandboxcache.AddIndexes(ctx, mgr.GetFieldIndexer()))
	var err error
	registry := prometheus.NewRegistry()
	w.claims = claimtest.New(t, cfg, clusterID, func(o *claimtest.Options) {
		o.Inventory.Namespaces = []string{w.Namespace} // worlds share a plane, and may be there at the same time
		o.Inventory.Time, o.Sandboxes.Metrics, o.Claims.Metrics = times, registry, registry
	})
	w.Must(mgr.Add(w.claims.Inventory))
	contests := replicas.NewContests(clock.RealClock{})
	w.rooms = rooms.New(mgr.GetClient(), clock.RealClock{})
	w.scaler, err = autoscale.New(autoscale.Options{
		Client: mgr.GetClient(), ClusterID: clusterID, Claims: w.claims, Inventory: w.claims, Admission: w, Contests: contests,
		Events: mgr.GetEventRecorder("atoll-worker"), Registry: registry, Times: times, Rooms: w.rooms,
		Refused: func(types.NamespacedName) (string, time.Duration, bool) {
			return "exceeded quota", time.Second, w.refused.Load()
		},
		Paused: func(o client.Object) bool { _, pool := o.(*v1alpha1.SandboxPool); return pool && w.kept.Load() },
	})
	w.Must(err)
	w.claims.SetOutlook(w.scaler.Outlook)
	w.Must(w.scaler.SetupWithManager(ctx, mgr))
	w.Must(w.claims.Watch(ctx, mgr.GetCache()))
	envs, err := env.New(mgr, env.Options{
		ClusterID: clusterID, Namespace: w.Namespace, Clock: times, Local: clock.RealClock{}, Contests: contests, Registerer: registry,
		Allotted: w.rooms.On,
	})
	w.Must(err)
	w.Must(envs.SetupWithManager(ctx, mgr))
	pools, err := pool.New(pool.Options{
		Client: mgr.GetClient(), Recorder: w, Events: mgr.GetEventRecorder("atoll-worker"), ClusterID: clusterID,
		Queues: w.claims, Registry: registry, Times: times,
	})
	w.Must(err)
	w.Must(pools.SetupWithManager(ctx, mgr))
	w.stop = w.Run("manager", mgr.Start)
	w.claims.SetIncarnation(1)
	w.Eventually("claims to be served", func() error { return wait.If(w.claims.Serving(), "not yet") })
}

// stays checks that a result holds for a while.
func (w *world) stays(what string, d time.Duration, check func() error) {
	w.t.Helper()
	for deadline := time.Now().Add(d); time.Now().Before(deadline); {
		if err := check(); err != nil {
			w.t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-w.t.Context().Done():
		case <-time.After(30 * time.Millisecond):
		}
	}
}

const template = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxTemplate
metadata: {name: NS-template}
spec:
  version: "1"
  template:
    spec:
      automountServiceAccountToken: false
      containers:
      - name: main
        image: test.local/default:1
`

// apply puts a manifest, server-side, as its user would. NS is the world's namespace.
func (w *world) apply(manifest string) {
	w.t.Helper()
	object := &unstructured.Unstructured{}
	w.Must(yaml.Unmarshal([]byte(strings.ReplaceAll(manifest, "NS", w.Namespace)), &object.Object))
	//nolint:staticcheck // the typed Apply needs apply configurations
	w.Must(w.Live.Patch(w.t.Context(), object, client.Apply, client.FieldOwner("kubectl"), client.ForceOwnership))
}

// create creates an object as the first client-side apply does.
func (w *world) create(manifest string) {
	w.t.Helper()
	object := &unstructured.Unstructured{}
	w.Must(yaml.Unmarshal([]byte(strings.ReplaceAll(manifest, "NS", w.Namespace)), &object.Object))
	w.Must(w.Live.Create(w.t.Context(), object, client.FieldOwner("kubectl-client-side-apply")))
}

// env applies an Env with these groups and members, in flow style.
func (w *world) env(groups, members string) {
	w.t.Helper()
	w.apply(template)
	w.apply(w.manifest(groups, members))
}

func (w *world) manifest(groups, members string) string {
	return `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: e, namespace: NS}
spec:
  templateRef: {name: NS-template}
  mode: WarmPool
  autoscaling: {groups: [` + groups + `]}
  clusters:
  - clusterID: east
    members: [` + members + `]
`
}

// replicas are a member's in the Env.
func (w *world) replicas(name string) int32 {
	w.t.Helper()
	e := w.Env("e")
	sandboxcache.FillMembers(e)
	for _, m := range e.Spec.Clusters[0].Members {
		if m.Name == name {
			return m.Spec.Replicas
		}
	}
	w.t.Fatalf("there is no member %s", name)
	return 0
}

// await waits for replicas of a member, in the Env and in Pods that live.
func (w *world) await(name string, replicas int32) {
	w.t.Helper()
	w.Eventually(fmt.Sprintf("%d replicas of %s", replicas, name), func() error {
		got, pods := w.replicas(name), w.Pods(name)
		return wait.If(got == replicas && int32(len(pods)) == replicas, fmt.Sprintf("%d in the Env, %d Pods", got, len(pods)))
	})
}

// idle waits until so many Pods of a pool can be claimed.
func (w *world) idle(name string, count int32) {
	w.t.Helper()
	w.Eventually(fmt.Sprintf("%d idle Pods of %s", count, name), func() error {
		stats, ok := w.claims.Stats(w.Key(name))
		return wait.If(ok && stats.ReadyIdle == count, stats)
	})
}

// awaitPool waits for a pool to exist and to be as check wants it.
func (w *world) awaitPool(name, what string, check func(*v1alpha1.SandboxPool) error) {
	w.t.Helper()
	w.Eventually(what, func() error {
		p := &v1alpha1.SandboxPool{}
		if err := w.Live.Get(w.t.Context(), w.Key(name), p); err != nil {
			return err
		}
		return check(p)
	})
}

func (w *world) awaitActive(status metav1.ConditionStatus, reason v1alpha1.ConditionReason) {
	w.t.Helper()
	w.Eventually(fmt.Sprintf("AutoscalingActive %s, %s", status, reason), func() error {
		for _, c := range w.Env("e").Status.Conditions {
			if c.Type == v1alpha1.SandboxEnvConditionAutoscalingActive {
				if c.Status == status && c.Reason == string(reason) {
					return nil
				}
				return fmt.Errorf("%+v", c)
			}
		}
		return errors.New("no such condition")
	})
}

// claim takes a sandbox, waiting for it.
func (w *world) claim(name, user string) (*sandboxv1.Sandbox, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return w.claims.Create(ctx, claim.Claim{
		Request: &sandboxv1.CreateSandboxRequest{Namespace: w.Namespace, Team: "red", User: user},
		Pool:    w.Key(name),
	})
}

// burst takes several sandboxes at once.
func (w *world) burst(name string, count int) {
	w.t.Helper()
	failures := make(chan error, count)
	for i := range count {
		go func() {
			_, err := w.claim(name, fmt.Sprintf("user-%d", i))
			failures <- err
		}()
	}
	for range count {
		if err := <-failures; err != nil {
			w.t.Error(err)
		}
	}
}

// setReplicas is a user who edits the Env by hand.
func (w *world) setReplicas(replicas int) { w.t.Helper(); w.setReplicasAs("kubectl-edit", replicas) }

func (w *world) setReplicasAs(manager string, replicas int) {
	w.t.Helper()
	e := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "e"}}
	body := fmt.Sprintf(`[{"op":"replace","path":"/spec/clusters/0/members/0/spec/replicas","value":%d}]`, replicas)
	w.Must(w.Live.Patch(w.t.Context(), e, client.RawPatch(types.JSONPatchType, []byte(body)), client.FieldOwner(manager)))
}

// replace is a client-side apply: what the manifest lacks is removed.
func (w *world) replace(manifest string) {
	w.t.Helper()
	w.Eventually("the replacement", func() error {
		object := &unstructured.Unstructured{}
		w.Must(yaml.Unmarshal([]byte(strings.ReplaceAll(manifest, "NS", w.Namespace)), &object.Object))
		object.SetResourceVersion(w.Env("e").ResourceVersion)
		return w.Live.Update(w.t.Context(), object, client.FieldOwner("kubectl-client-side-apply"))
	})
}
