// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"navix.sh/atoll/e2e/must"
)

func TestRestoreTakesBackWhatCameAfterTheBackup(t *testing.T) {
	ctx := testContext(t)
	p := planes.Plane("west")
	client := clientOf(t, p)
	namespace := newNamespace(ctx, t, client)
	create := func(name string) *corev1.ConfigMap {
		t.Helper()
		made, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		must.Succeed(t, err)
		return made
	}
	before := create("before")
	backup := filepath.Join(t.TempDir(), "etcd")
	must.Succeed(t, p.Backup(backup))
	after := create("after")
	must.Succeed(t, p.Restore(ctx, backup))
	if got, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, before.Name, metav1.GetOptions{}); err != nil || got.UID != before.UID {
		t.Errorf("what was there before the backup is %v (%v)", got, err)
	}
	if _, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, after.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what came after the backup is answered with %v", err)
	}
	newNamespace(ctx, t, client) // controllers work on what there is now, and make its service account
}

func TestASecondAPIServerServesTheSameCluster(t *testing.T) {
	ctx := testContext(t)
	p := planes.Plane("east")
	address, err := p.AddAPIServer(ctx)
	must.Succeed(t, err)
	namespace := newNamespace(ctx, t, clientOf(t, p))
	config := p.Config()
	if config.Host == "https://"+address {
		t.Fatalf("the second API server has the address of the first, %s", address)
	}
	config.Host = "https://" + address
	second, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	if _, err := second.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
		t.Error(fmt.Errorf("at the second API server: %w", err))
	}
}
