// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"navix.sh/atoll/e2e/must"
)

// TestHostedWorkersHaveNoRightsInTheirOwnCluster: a hosting release has a Role in its namespace and nothing of a worker of its cluster.
func TestHostedWorkersHaveNoRightsInTheirOwnCluster(t *testing.T) {
	release := workerRelease("")
	release.Values = "hosted: {enabled: true}\nhub: {address: 'hub.example.org:8443'}\n"
	objects, err := helm.Template(t.Context(), release)
	must.Succeed(t, err)
	var roles []string
	for _, object := range objects {
		switch object.GetKind() {
		case "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "ValidatingAdmissionPolicy":
			t.Errorf("there is %s %s", object.GetKind(), object.GetName())
		case "Role":
			roles = append(roles, object.GetName())
			var role rbacv1.Role
			must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role))
			for _, rule := range role.Rules {
				if !slices.Equal(rule.Resources, []string{"secrets"}) && !slices.Equal(rule.Resources, []string{"leases"}) {
					t.Errorf("the Role has rights to %v", rule.Resources)
				}
			}
		case "Deployment":
			var d appsv1.Deployment
			must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &d))
			args := strings.Join(d.Spec.Template.Spec.Containers[0].Args, " ")
			for _, want := range []string{"--provider=kubeconfig", "--token-file=/etc/atoll/invitations/{cluster}"} {
				if !strings.Contains(args, want) {
					t.Errorf("the worker has no %s: %s", want, args)
				}
			}
			for _, not := range []string{"--cluster-id", "--peer-", "--tls-cert-file"} {
				if strings.Contains(args, not) {
					t.Errorf("the worker has %s: %s", not, args)
				}
			}
			if *d.Spec.Replicas != 2 {
				t.Errorf("there are %d replicas, want 2", *d.Spec.Replicas)
			}
			if len(roles) == 1 && d.Spec.Template.Spec.ServiceAccountName != roles[0] {
				t.Errorf("the Pods are %s, and the Role is of %s", d.Spec.Template.Spec.ServiceAccountName, roles[0])
			}
		}
	}
	if len(roles) != 1 {
		t.Errorf("the Roles are %v, want one", roles)
	}
	release.Values = "hosted: {enabled: true}\nclusterID: east\n"
	if _, err := helm.Template(t.Context(), release); err == nil || !strings.Contains(err.Error(), "clusterID") {
		t.Errorf("a cluster id of a hosting release gives %v", err)
	}
}
