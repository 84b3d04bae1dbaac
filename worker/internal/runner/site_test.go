// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/history"
)

// site is a cluster with a whole worker in it, with the permissions of the chart and no others, and no hub.
type site struct {
	ctx        context.Context
	plane      *plane.Plane
	live       client.Client // of an administrator
	kubeconfig string
	sandboxes  sandboxv1.SandboxesClient
	envs       sandboxv1.EnvsClient
}

// newSite brings up a cluster for one test; its subtests have namespaces of their own.
func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteWith(t, func(t *testing.T, s *site) {
		if _, err := s.plane.Kubectl(s.ctx, "apply", "--server-side", "-f", filepath.Join("..", "..", "..", "charts", "worker", "files",
			"rbac")); err != nil {
			t.Fatal(err)
		}
	})
}

// newSiteWith gives the worker other permissions.
func newSiteWith(t *testing.T, permissions func(*testing.T, *site)) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	t.Cleanup(cancel)
	set, err := plane.Up(ctx, plane.Options{AuditLog: true}, "east")
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := set.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s := &site{ctx: ctx, plane: set.Plane("east")}
	s.live, err = client.New(s.plane.Config(), client.Options{Scheme: planetest.Scheme(t)})
	must.Succeed(t, err)
	permissions(t, s)
	s.kubeconfig, err = s.plane.ServiceAccountKubeconfig(ctx, "atoll-system", "atoll-worker")
	must.Succeed(t, err)
	return s
}

// run runs a worker until the test ends, or stop is called.
func (s *site) run(t *testing.T, change func(*Options)) (stop func()) {
	t.Helper()
	registry := metrics.Registry
	metrics.Registry = prometheus.NewRegistry()
	o := Options{
		clusterID: "east", kubeconfig: s.kubeconfig, namespace: "atoll-system",
		pools:   poolOptions{queueCapacity: claim.DefaultQueueCapacity},
		history: historyOptions{dir: t.TempDir(), retention: history.DefaultRetention, records: history.DefaultMaxRecords},
		listen:  listenOptions{api: freeAddress(t), health: freeAddress(t), metrics: "0"},
	}
	if change != nil {
		change(&o)
	}
	must.Succeed(t, o.Validate())
	log := testlog.New(t)
	ctrl.SetLogger(log)
	running, cancel := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(running, o, log) }()
	conn, err := grpc.NewClient(o.listen.api, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	must.Succeed(t, err)
	s.sandboxes, s.envs = sandboxv1.NewSandboxesClient(conn), sandboxv1.NewEnvsClient(conn)
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the worker ended: %v", err)
		}
		conn.Close()
		metrics.Registry = registry
	})
	t.Cleanup(stop)
	planetest.Eventually(t, "readiness", func() error { return get("http://" + o.listen.health + "/readyz") })
	return stop
}

// run runs one worker as the command does.
func run(ctx context.Context, o Options, log logr.Logger) error {
	cluster, err := o.Cluster()
	if err != nil {
		return err
	}
	return New(cluster, o, log).Run(ctx)
}

// place is a namespace of a site.
type place struct {
	*site
	*planetest.Place
	t *testing.T
}

func (s *site) place(t *testing.T) *place {
	t.Helper()
	return &place{site: s, Place: planetest.PlaceOn(t, s.plane), t: t}
}

// fill puts the namespace for NS, and a name that is unique in the cluster for TEMPLATE.
func (p *place) fill(text string) string {
	return strings.NewReplacer("NS", p.Namespace, "TEMPLATE", p.Namespace+"-template").Replace(text)
}

// kubectl runs kubectl, and returns its output and its error.
func (p *place) tryKubectl(stdin string, args ...string) (string, error) {
	filled := []string{"-n", p.Namespace}
	for _, arg := range args {
		filled = append(filled, p.fill(arg))
	}
	return p.plane.KubectlInput(p.ctx, strings.NewReader(p.fill(stdin)), filled...)
}

func (p *place) kubectl(stdin string, args ...string) string {
	p.t.Helper()
	out, err := p.tryKubectl(stdin, args...)
	p.Must(err)
	return out
}

func (p *place) apply(manifest string) { p.t.Helper(); p.kubectl(manifest, "apply", "-f", "-") }

// pods are those of a pool that are not being deleted, by name.
func (p *place) pods(pool string) map[string]corev1.Pod {
	p.t.Helper()
	out := map[string]corev1.Pod{}
	for _, pod := range p.Pods(pool) {
		out[pod.Name] = pod
	}
	return out
}

// limitPods creates a quota in the place, and waits until it is enforced.
func (p *place) limitPods(most int64) *corev1.ResourceQuota {
	p.t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "quota"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(most, resource.DecimalSI)}
	p.Must(p.live.Create(p.ctx, quota))
	planetest.Eventually(p.t, "the quota to count", func() error {
		p.Must(p.live.Get(p.ctx, client.ObjectKeyFromObject(quota), quota))
		return wait.If(len(quota.Status.Hard) != 0, "it has no status")
	})
	return quota
}

// awaitIdle waits until the pool's status reports so many idle Pods that can serve.
func (p *place) awaitIdle(pool string, idle int32) {
	p.t.Helper()
	planetest.Eventually(p.t, fmt.Sprintf("%d idle Pods in %s", idle, pool), func() error {
		got := &v1alpha1.SandboxPool{}
		if err := p.live.Get(p.ctx, p.Key(pool), got); err != nil {
			return err
		}
		s := got.Status
		return wait.If(s.IdleReplicas-s.UnavailableIdleReplicas == idle && s.StoppingReplicas <= 0, s)
	})
}

// awaitCondition waits for a condition of any kind of object, and returns its message.
func (p *place) awaitCondition(kind, name, condition string, status metav1.ConditionStatus, reason v1alpha1.ConditionReason) string {
	p.t.Helper()
	var message string
	planetest.Eventually(p.t, fmt.Sprintf("%s=%s/%s of %s %s", condition, status, reason, kind, name), func() error {
		var conditions []metav1.Condition
		switch kind {
		case "pool":
			conditions = p.Pool(name).Status.Conditions
		case "env":
			conditions = p.Env(name).Status.Conditions
		case "template":
			// As a document; because the Go type may be unable to hold a template.
			out, err := p.tryKubectl("", "get", "sandboxtemplate", name, "-o", "jsonpath={.status.conditions}")
			if err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(out), &conditions); err != nil {
				return fmt.Errorf("%s: %w", out, err)
			}
		}
		c := meta.FindStatusCondition(conditions, condition)
		if c == nil || c.Status != status || c.Reason != string(reason) {
			return fmt.Errorf("%+v", conditions)
		}
		message = c.Message
		return nil
	})
	return message
}

// claim claims a sandbox of an Env by the worker's local API.
func (p *place) claim(env string) (*sandboxv1.Sandbox, error) {
	return p.sandboxes.CreateSandbox(p.ctx, &sandboxv1.CreateSandboxRequest{Namespace: p.Namespace, Env: env, Team: "team", NoQueue: true})
}

func (p *place) mustClaim(env string) *sandboxv1.Sandbox {
	p.t.Helper()
	var got *sandboxv1.Sandbox
	planetest.Eventually(p.t, "a sandbox of "+env, func() (err error) {
		got, err = p.claim(env)
		return err
	})
	return got
}

// release retries while there is no leader, as callers do.
func (p *place) release(id string) {
	p.t.Helper()
	planetest.Eventually(p.t, "the release of "+id, func() error {
		_, err := p.sandboxes.ReleaseSandbox(p.ctx, &sandboxv1.ReleaseSandboxRequest{Id: id})
		if err != nil && problem.FromError(err).Reason != problem.Unavailable {
			p.Must(err)
		}
		return err
	})
}

// awaitEnded waits for the record of a sandbox's end.
func (p *place) awaitEnded(id string) *sandboxv1.Sandbox {
	p.t.Helper()
	var got *sandboxv1.Sandbox
	planetest.Eventually(p.t, "the record of "+id, func() (err error) {
		got, err = p.sandboxes.GetSandbox(p.ctx, &sandboxv1.GetSandboxRequest{Id: id})
		if err == nil && got.GetPhase() != sandboxv1.Phase_ENDED {
			err = errors.New(got.GetPhase().String())
		}
		return err
	})
	return got
}

// awaitEvent waits for an Event about an object of that name, and returns its note.
func (p *place) awaitEvent(name, reason string) string {
	p.t.Helper()
	var note string
	planetest.Eventually(p.t, "an event "+reason+" about "+name, func() error {
		list := &corev1.EventList{}
		p.Must(p.live.List(p.ctx, list, client.InNamespace(p.Namespace)))
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == reason && e.InvolvedObject.Name == name {
				note = e.Message
				return nil
			}
		}
		return fmt.Errorf("not among %d", len(list.Items))
	})
	return note
}

// awaitGone waits until there is no such object any more.
func (p *place) awaitGone(object client.Object, name string) {
	p.t.Helper()
	planetest.Eventually(p.t, "the end of "+name, func() error {
		err := p.live.Get(p.ctx, p.Key(name), object)
		return wait.If(apierrors.IsNotFound(err), err)
	})
}
