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
			wantText(t, "the arguments", args, "--provider=kubeconfig", "--token-file=/etc/atoll/invitations/{cluster}")
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
	wantRefusals(t, release, "", map[string]string{
		"hosted: {enabled: true}\nclusterID: east\n":                                 "clusterID",
		"hosted: {enabled: true, provider: kind}":                                    "/hosted/provider",
		"hosted: {enabled: true, namespace: fleet}":                                  "/hosted/namespace",
		"hosted: {enabled: true, selector: a=b}":                                     "/hosted/selector",
		"hosted: {enabled: true, provider: cluster-api, namespace: Not_A_Namespace}": "/hosted/namespace",
	})
}

// TestHostedWorkersReadTheirConfigMapsElsewhere: what the served clusters have in ConfigMaps of their own is refused, not dropped.
func TestHostedWorkersReadTheirConfigMapsElsewhere(t *testing.T) {
	const hosted = "hosted: {enabled: true}\n"
	wantRefusals(t, workerRelease(""), hosted, map[string]string{
		"teamQuotas: {enabled: true, teams: {ml: {maxReplicas: 40}}}":    "'/teamQuotas/teams'",
		"instanceTypes: {small: {requests: {cpu: 1}}}":                   "'/instanceTypes'",
		"tls: {certManager: {enabled: true, issuerRef: {name: anyone}}}": "'/tls/certManager/enabled'",
	})
	release := workerRelease("")
	release.Values = hosted + "teamQuotas: {enabled: true}\n"
	objects, err := helm.Template(t.Context(), release)
	must.Succeed(t, err)
	args := as[appsv1.Deployment](t, objects, "Deployment", "atoll-worker").Spec.Template.Spec.Containers[0].Args
	if n := kindsOf(objects)["ConfigMap"]; n != 0 || !slices.Contains(args, "--team-quotas") {
		t.Errorf("there are %d ConfigMaps, and the worker has %q", n, args)
	}
}

// TestHostedProvidersHaveTheirRights: no right but to what the provider reads, where it is, and to write what the worker keeps.
func TestHostedProvidersHaveTheirRights(t *testing.T) {
	const keeps = "atoll-system: coordination.k8s.io/leases get,list,create,update,delete"
	for name, tt := range map[string]struct {
		values string
		rights []string
		args   []string
	}{
		"kubeconfig": {"", []string{"atoll-system: /secrets get,list,watch,create,update"}, []string{"--provider=kubeconfig"}},
		"cluster-api": {
			"provider: cluster-api, namespace: fleet, selector: 'env in (prod)'",
			[]string{"atoll-system: /secrets get,create,update", "fleet: cluster.x-k8s.io/clusters get,list,watch",
				"fleet: /secrets get,list,watch", "fleet: events.k8s.io/events create,patch"},
			[]string{"--provider=cluster-api", "--provider-namespace=fleet", "--provider-selector=env in (prod)"},
		},
		"cluster-api beside the release": {
			"provider: cluster-api",
			[]string{"atoll-system: /secrets get,create,update", "atoll-system: cluster.x-k8s.io/clusters get,list,watch",
				"atoll-system: /secrets get,list,watch", "atoll-system: events.k8s.io/events create,patch"},
			[]string{"--provider=cluster-api"},
		},
		"cluster-inventory": {
			"provider: cluster-inventory, namespace: fleet",
			[]string{"atoll-system: /secrets get,list,watch,create,update", "fleet: multicluster.x-k8s.io/clusterprofiles get,list,watch",
				"fleet: events.k8s.io/events create,patch"},
			[]string{"--provider=cluster-inventory", "--provider-namespace=fleet"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			release := workerRelease("")
			release.Values = "hosted: {enabled: true, " + tt.values + "}\n"
			objects, err := helm.Template(t.Context(), release)
			must.Succeed(t, err)
			var rights, args []string
			bound := map[string]bool{}
			for _, object := range objects {
				switch object.GetKind() {
				case "ClusterRole", "ClusterRoleBinding":
					t.Errorf("there is %s %s", object.GetKind(), object.GetName())
				case "Role":
					var role rbacv1.Role
					must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role))
					for _, rule := range role.Rules {
						rights = append(rights, role.Namespace+": "+rule.APIGroups[0]+"/"+strings.Join(rule.Resources, ",")+" "+
							strings.Join(rule.Verbs, ","))
					}
					if name := role.Namespace + "/" + role.Name; !bound[name] {
						bound[name] = false // unless its binding came before it
					}
				case "RoleBinding":
					var binding rbacv1.RoleBinding
					must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding))
					bound[binding.Namespace+"/"+binding.RoleRef.Name] = binding.Subjects[0].Namespace == release.Namespace
				case "Deployment":
					var d appsv1.Deployment
					must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &d))
					for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
						if strings.HasPrefix(arg, "--provider") {
							args = append(args, arg)
						}
					}
				}
			}
			want := append([]string{keeps}, tt.rights...)
			slices.Sort(want)
			slices.Sort(rights)
			if !slices.Equal(rights, want) {
				t.Errorf("the rights are\n%s\nwant\n%s", strings.Join(rights, "\n"), strings.Join(want, "\n"))
			}
			for role, ok := range bound {
				if !ok {
					t.Errorf("no worker of the release has the Role %s", role)
				}
			}
			if !slices.Equal(args, tt.args) {
				t.Errorf("the worker has %q, want %q", args, tt.args)
			}
		})
	}
}
