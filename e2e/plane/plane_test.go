// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/wait"
)

// planes are shared by all tests of the package; each test has a namespace of its own in them.
var planes *plane.Set

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimEnv); dir != "" {
		os.Exit(victim(dir))
	}
	code := run(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// The first run on a machine builds Kubernetes.
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	var err error
	planes, err = plane.Up(ctx, plane.Options{AuditLog: true}, "east", "west")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := planes.Down(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// patience is how long a test waits for what should take a second or two.
const patience = 30 * time.Second

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

func clientOf(t *testing.T, p *plane.Plane) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.Config())
	must.Succeed(t, err)
	return client
}

// newNamespace makes a namespace in which Pods are admitted.
func newNamespace(ctx context.Context, t *testing.T, client *kubernetes.Clientset) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	namespace, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	must.Succeed(t, err)
	wait.For(t, patience, "the default service account", func(context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return namespace.Name
}

func TestPlanesAreSeparateClusters(t *testing.T) {
	ctx := testContext(t)
	uids := map[string]bool{}
	addresses := map[string]bool{}
	for _, p := range planes.Planes() {
		client := clientOf(t, p)
		system, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		must.Succeed(t, err)
		uids[string(system.UID)] = true
		addresses[p.Config().Host] = true
		version, err := client.Discovery().ServerVersion()
		must.Succeed(t, err)
		if version.GitVersion != "v1.36.3" {
			t.Errorf("%s runs %s", p.Name, version.GitVersion)
		}
	}
	if len(uids) != 2 || len(addresses) != 2 {
		t.Errorf("two planes have %d identities and %d addresses", len(uids), len(addresses))
	}
}

func TestUpRefusesBadNames(t *testing.T) {
	for _, names := range [][]string{nil, {"East"}, {"a", "b", "a"}, {"../a"}} {
		if set, err := plane.Up(t.Context(), plane.Options{}, names...); err == nil {
			t.Errorf("Up(%q) succeeded", names)
			_ = set.Down(t.Context())
		}
	}
}

func TestServiceAccountHasItsOwnRightsOnly(t *testing.T) {
	ctx := testContext(t)
	east := planes.Plane("east")
	admin := clientOf(t, east)
	namespace := newNamespace(ctx, t, admin)
	manifest := `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: default}]
`
	apply(ctx, t, east, namespace, manifest)
	path, err := east.ServiceAccountKubeconfig(ctx, namespace, "default")
	must.Succeed(t, err)
	restricted := clientFrom(t, path)
	// A role takes a moment to reach the authorizer.
	wait.For(t, patience, "the right to list", func(context.Context) error {
		_, err := restricted.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := restricted.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing pods: want forbidden, got %v", err)
	}
	if _, err := restricted.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing another namespace: want forbidden, got %v", err)
	}
	if _, err := east.ServiceAccountKubeconfig(ctx, namespace, "missing"); !apierrors.IsNotFound(err) {
		t.Errorf("unknown service account: want not found, got %v", err)
	}
}

func TestAuditTellsWritesOfAUser(t *testing.T) {
	ctx := testContext(t)
	west := planes.Plane("west")
	client := clientOf(t, west)
	namespace := newNamespace(ctx, t, client)
	for i := range 3 {
		data := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}}
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, data, metav1.CreateOptions{})
		must.Succeed(t, err)
	}
	wait.For(t, patience, "three writes in the audit log", func(context.Context) error {
		events, err := west.Audit()
		if err != nil {
			return err
		}
		writes := 0
		for _, e := range events {
			if e.User == "plane-admin" && e.Namespace == namespace && e.Resource == "configmaps" && e.Write() && e.Code == 201 {
				writes++
			}
		}
		return wait.If(writes == 3, writes)
	})
}
