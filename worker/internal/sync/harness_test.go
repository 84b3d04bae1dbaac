// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"strings"
	gosync "sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
)

const (
	namespace = "atoll-system"
	// workerAccount stands for the worker: it may watch Envs and ask for tokens of atoll-sync, nothing else.
	workerAccount = "sync-test"
)

var plain = planetest.New("sync", plane.Options{}, func(ctx context.Context, p *plane.Plane) error { return grant(ctx, p.Config()) })

func TestMain(m *testing.M) { plain.Main(m) }

// grant creates the two ServiceAccounts with the rights of the markers.
func grant(ctx context.Context, cfg *rest.Config) error {
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	const group = "agents.navix.sh"
	name := func(n string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: n, Namespace: namespace} }
	account := func(n string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: n}}
	}
	role := func(kind, n string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: n}
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: name(ServiceAccount)},
		&corev1.ServiceAccount{ObjectMeta: name(workerAccount)},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ServiceAccount}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{group}, Resources: []string{"sandboxenvs/status"}, Verbs: []string{"patch"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ServiceAccount},
			Subjects: account(ServiceAccount), RoleRef: role("ClusterRole", ServiceAccount)},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: workerAccount}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{group}, Resources: []string{"sandboxenvs"}, Verbs: []string{"get", "list", "watch"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: workerAccount},
			Subjects: account(workerAccount), RoleRef: role("ClusterRole", workerAccount)},
		&rbacv1.Role{ObjectMeta: name(workerAccount), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{ServiceAccount},
				Verbs: []string{"create"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: name(workerAccount), Subjects: account(workerAccount), RoleRef: role("Role", workerAccount)},
	} {
		if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// cluster is the plane as this package's tests use it.
type cluster struct {
	*testing.T
	client.Client // as administrator
	worker        *rest.Config
	name          string // of the Env of this test
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	admin := plain.Up(t).Config()
	c, err := client.New(admin, client.Options{Scheme: planetest.Scheme(t)})
	must.Succeed(t, err)
	worker := rest.CopyConfig(admin)
	worker.Impersonate.UserName = "system:serviceaccount:" + namespace + ":" + workerAccount
	return &cluster{T: t, Client: c, worker: worker, name: strings.ToLower(strings.ReplaceAll(t.Name(), "_", "-"))}
}

func (c *cluster) syncConfig() *rest.Config {
	c.Helper()
	cfg, err := Config(c.worker, namespace, ServiceAccount)
	c.must(err)
	return cfg
}

func (c *cluster) must(err error) {
	c.Helper()
	must.Succeed(c, err)
}

func (c *cluster) eventually(check func() error) {
	c.Helper()
	planetest.Eventually(c, c.name, check)
}

func (c *cluster) createEnv() *v1alpha1.SandboxEnv {
	c.Helper()
	env := &v1alpha1.SandboxEnv{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: c.name},
		Spec: v1alpha1.SandboxEnvSpec{
			TemplateRef: v1alpha1.SandboxEnvTemplateRef{Name: "python"}, Mode: v1alpha1.SandboxEnvModeWarmPool,
		},
	}
	c.must(c.Create(c.Context(), env))
	return env
}

// writeLocal writes the local segment the way the Env reconciler does.
func (c *cluster) writeLocal(idle int) {
	c.Helper()
	body := fmt.Sprintf(`{"apiVersion":"agents.navix.sh/v1alpha1","kind":"SandboxEnv","metadata":{"name":%q,"namespace":"default"},
		"status":{"clusters":[{"clusterID":"east","isLocal":true,"observedMembers":[{"name":"main","idleCount":%d}]}],"memberCount":1}}`, c.name,
		idle)
	c.must(c.Status().Patch(c.Context(), &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: c.name}},
		client.RawPatch(types.ApplyPatchType, []byte(body)), client.FieldOwner("atoll-worker"), client.ForceOwnership))
}

func (c *cluster) env() *v1alpha1.SandboxEnv {
	c.Helper()
	env := &v1alpha1.SandboxEnv{}
	c.must(c.Get(c.Context(), types.NamespacedName{Namespace: "default", Name: c.name}, env))
	return env
}

// shows returns the idle count of the first member by ClusterID, and Federated's reason.
func (c *cluster) shows() string {
	c.Helper()
	var parts []string
	env := c.env()
	for _, s := range env.Status.Clusters {
		idle := int32(-1)
		if len(s.ObservedMembers) > 0 {
			idle = s.ObservedMembers[0].IdleCount
		}
		parts = append(parts, fmt.Sprintf("%s:%t=%d", s.ClusterID, s.IsLocal, idle))
	}
	if f := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.SandboxEnvConditionFederated); f != nil {
		parts = append(parts, f.Reason)
	}
	return strings.Join(parts, " ")
}

func (c *cluster) wantShown(want string) {
	c.Helper()
	c.eventually(func() error {
		got := c.shows()
		return wait.If(got == want, fmt.Sprintf("the env shows %q, want %q", got, want))
	})
}

// syncer starts a Syncer of cluster east, and stops it at the end of the test or by the function returned.
func (c *cluster) syncer() (*Syncer, func()) {
	c.Helper()
	return c.syncerAt(clock.RealClock{})
}

// syncerAt is syncer with a clock.
func (c *cluster) syncerAt(clk clock.Clock) (*Syncer, func()) {
	c.Helper()
	informers, err := cache.New(c.worker, cache.Options{Scheme: planetest.Scheme(c)})
	c.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := New(ctx, Options{
		ClusterID: "east", Config: c.syncConfig(), Cache: informers, Clock: clk, Log: testlog.New(c.T),
	})
	c.must(err)
	var running gosync.WaitGroup
	running.Go(func() { _ = informers.Start(ctx) })
	running.Go(func() {
		if err := s.Start(ctx); err != nil {
			c.Error(err)
		}
	})
	stop := gosync.OnceFunc(func() { cancel(); running.Wait() })
	c.Cleanup(stop)
	return s, stop
}

func (c *cluster) tell(known []string, idle map[string]int32) *federationv1.Foreign {
	env := &federationv1.ForeignEnv{Key: &federationv1.EnvKey{Namespace: "default", Name: c.name}}
	for id, n := range idle {
		env.Segments = append(env.Segments, &federationv1.ForeignSegment{ClusterId: id, Members: []*federationv1.MemberSegment{
			{Name: "main", State: federationv1.MemberState_ACTIVE, Idle: n},
		}})
	}
	return &federationv1.Foreign{Complete: true, Last: true, Known: known, Envs: []*federationv1.ForeignEnv{env}}
}

// settled waits until the syncer has nothing left to look at.
func (c *cluster) settled(s *Syncer) {
	c.Helper()
	c.eventually(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := len(s.budget.dirty)
		return wait.If(n <= 0, n)
	})
}
