// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/pool"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const (
	patience  = 60 * time.Second
	clusterID = "east"
	poolImage = "test.local/default:1"
)

var east = planetest.New(clusterID, plane.Options{Delays: plane.Delays{Start: 20 * time.Millisecond, StartMax: 50 * time.Millisecond}}, nil)

func TestMain(m *testing.M) { east.Main(m) }

// world is a namespace of a real control plane, the certificates of a federation, and the address of a hub.
type world struct {
	*testing.T
	*planetest.Place
	ca  *pki.Authority
	hub *hub
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, Place: east.Place(t)}
	var err error
	w.ca, err = pki.New(filepath.Join(t.TempDir(), "pki"))
	w.Must(err)
	w.hub = newHub(w)
	return w
}

// newCluster is a world with the Env py, whose worker has told the hub of its idle Pods.
func newCluster(t *testing.T, pods int32) (*world, *worker, *session) {
	t.Helper()
	w := newWorld(t)
	w.makeEnv("py", pods)
	leader := w.lead(clusterID)
	s := w.hub.session()
	w.hub.shows("py", pods)
	return w, leader, s
}

// worker is a leader: pools, claims, agent.
type worker struct {
	*world
	claims  claimtest.Path
	agent   *Agent
	foreign *ear
	log     chan string  // of the link
	end     func() error // waits for its end
	stop    func() error // ends it
}

// ear gets what package sync would get.
type ear struct {
	heard     chan *federationv1.Foreign
	connected atomic.Bool
}

func (e *ear) Connected(connected bool)        { e.connected.Store(connected) }
func (e *ear) Receive(f *federationv1.Foreign) { e.heard <- f }

// lead starts a worker whose certificate is that of the given cluster.
func (w *world) lead(certificate string) *worker {
	w.Helper()
	return w.leadWith(certificate, func(*Options) {})
}

// leadWith is lead with changed options.
func (w *world) leadWith(certificate string, with func(*Options)) *worker {
	w.Helper()
	return w.leadOn(w.Config(), certificate, with)
}

// leadOn is leadWith with the configuration of the worker's clients.
func (w *world) leadOn(cfg *rest.Config, certificate string, with func(*Options)) *worker {
	w.Helper()
	mgr := w.Manager(cfg, sandboxcache.ByObject(), logr.Discard())
	w.Must(sandboxcache.AddIndexes(w.Context(), mgr.GetFieldIndexer()))
	files, err := w.ca.Cluster(certificate)
	w.Must(err)
	creds, err := link.LoadCredentials(files, logr.Discard())
	w.Must(err)
	out := &worker{world: w, claims: claimtest.New(w.T, cfg, clusterID), foreign: &ear{heard: make(chan *federationv1.Foreign, 64)},
		log: make(chan string, 1024)}
	linkLog := funcr.New(func(_, args string) { out.log <- args }, funcr.Options{})
	options := Options{
		ClusterID: clusterID, Version: "test", Namespace: w.Namespace,
		Services:  Services{Claims: out.claims, Sandboxes: out.claims.Sandboxes},
		Inventory: out.claims, Foreign: out.foreign,
		Hub:   link.Dial{Target: w.hub.address, Credentials: creds, Clock: clock.RealClock{}, Log: linkLog},
		Clock: clock.RealClock{}, Log: logr.Discard(),
	}
	with(&options)
	out.agent, err = SetupWithManager(w.Context(), mgr, options)
	w.Must(err)
	w.Must(out.claims.Watch(w.Context(), mgr.GetCache()))
	w.Must(mgr.Add(out.claims.Inventory))
	pools, err := pool.New(pool.Options{
		Client: mgr.GetClient(), Recorder: out.claims, Events: mgr.GetEventRecorder("pool"), ClusterID: clusterID,
		Registry: prometheus.NewRegistry(),
	})
	w.Must(err)
	w.Must(pools.SetupWithManager(w.Context(), mgr))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	out.end = sync.OnceValue(func() error {
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("it does not end")
		}
	})
	out.stop = func() error { cancel(); return out.end() }
	w.Cleanup(func() { cancel(); _ = out.end() })
	return out
}

// makeEnv creates an Env with the one member <name>-main, and that member's pool.
func (w *world) makeEnv(name string, replicas int32) {
	w.Helper()
	member := name + "-main"
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	env.Spec.TemplateRef.Name, env.Spec.Mode = "python", v1alpha1.SandboxEnvModeWarmPool
	env.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: clusterID, Members: []v1alpha1.EnvClusterMember{{Name: member}}}}
	env.Spec.Clusters[0].Members[0].Spec.Replicas = replicas
	w.Must(w.Live.Create(w.Context(), env))
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Namespace, Name: member, Labels: map[string]string{v1alpha1.LabelEnv: name}}}
	p.Spec.Replicas = replicas
	p.Spec.PodCreationImagePolicy = v1alpha1.PodCreationImagePolicyPoolDefaultImage
	p.Spec.Template.Spec.AutomountServiceAccountToken = new(false)
	p.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: poolImage}}
	w.Must(w.Live.Create(w.Context(), p))
}

// scale is a merge patch: the pool's reconciler writes to the same object.
func (w *world) scale(pool string, replicas int32) {
	w.Helper()
	p := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pool}}
	body := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	w.Must(w.Live.Patch(w.Context(), p, client.RawPatch(types.MergePatchType, []byte(body))))
}

func (w *world) deleteEnv(name string) {
	w.Helper()
	w.Must(w.Live.Delete(w.Context(), &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}))
}

func (w *world) pods() []corev1.Pod {
	w.Helper()
	list := &corev1.PodList{}
	w.Must(w.Live.List(w.Context(), list, client.InNamespace(w.Namespace)))
	return list.Items
}
