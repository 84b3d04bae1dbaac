// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/e2e/must"
)

func TestRBACOfAHostedClusterIsTheWorkersWithoutSecrets(t *testing.T) {
	render := func(args ...string) (string, error) {
		return atollctl(t, append([]string{"cluster", "rbac"}, args...)...)
	}
	text, err := render("east", "--pull-secrets=false", "--worker-namespace=elsewhere", "--crds", "--policies")
	must.Succeed(t, err)
	kinds := map[string]int{}
	for _, document := range strings.Split(text, "\n---\n") {
		var role rbacv1.ClusterRole // a Role has the same rules
		must.Succeed(t, yaml.Unmarshal([]byte(document), &role))
		kinds[role.Kind]++
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				if resource == "secrets" || resource == "*" {
					t.Errorf("%s %s has rights to %s", role.Kind, role.Name, resource)
				}
			}
		}
	}
	for _, kind := range []string{"Namespace", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding",
		"CustomResourceDefinition", "ValidatingAdmissionPolicy"} {
		if kinds[kind] == 0 {
			t.Errorf("there is no %s: %v", kind, kinds)
		}
	}
	if strings.Contains(text, "atoll-system") || strings.Contains(text, "CLUSTER_ID") {
		t.Error("the namespace or the cluster is not filled in")
	}
	for _, args := range [][]string{{"East_1"}, {"east", "--worker-namespace=A"}, {}} {
		if out, err := render(args...); err == nil {
			t.Errorf("%v prints %s", args, out)
		}
	}
}
