// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/e2e/must"
)

var invitation = "atoll-join.v1." + strings.Repeat("ab", 32) + ".i1.secret"

// An invitation is all that the worker's chart needs: it prepares what the worker writes its identity to, and mounts no certificate.
func TestAWorkerIsInstalledWithAnInvitationAlone(t *testing.T) {
	for name, c := range map[string]struct {
		values, secret string
		made           bool
	}{
		"token":       {"hub: {address: 'h:8443', token: " + invitation + "}", "atoll-worker-invitation", true},
		"tokenSecret": {"hub: {address: 'h:8443', tokenSecret: mine}", "mine", false},
		"later":       {"hub: {address: 'h:8443'}\ntls: {fromHub: true}", "atoll-worker-invitation", false},
	} {
		t.Run(name, func(t *testing.T) {
			objects := renderWorker(t, c.values)
			pod := as[appsv1.Deployment](t, objects, "Deployment", "atoll-worker").Spec.Template.Spec
			args := pod.Containers[0].Args
			if !slices.Contains(args, "--token-file=/etc/atoll/invitation/token") || !slices.Contains(args, "--peer-listen=:8444") ||
				slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--tls-") }) {
				t.Errorf("arguments %q", args)
			}
			if v := pod.Volumes[1]; len(pod.Volumes) != 2 || v.Secret.SecretName != c.secret || v.Secret.Optional == nil || !*v.Secret.Optional {
				t.Errorf("volumes %v", pod.Volumes)
			}
			own := as[corev1.Secret](t, objects, "Secret", "atoll-worker-identity")
			if len(own.Data)+len(own.StringData) > 0 || own.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("the Secret of the identity is %v", own)
			}
			made := objects.Find("Secret", "atoll-worker-invitation") != nil
			if made != c.made {
				t.Errorf("a Secret of the invitation: %t", made)
			}
			if made {
				if got := as[corev1.Secret](t, objects, "Secret", "atoll-worker-invitation").StringData["token"]; got != invitation {
					t.Errorf("its token is %q", got)
				}
			}
			rules := as[rbacv1.Role](t, objects, "Role", "atoll-worker-identity").Rules
			i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "secrets") })
			if i < 0 || !slices.Equal(rules[i].ResourceNames, []string{"atoll-worker-identity"}) || !slices.Equal(rules[i].Verbs, []string{"get",
				"update"}) {
				t.Errorf("rights on Secrets: %v", rules)
			}
		})
	}
	wantRefusals(t, workerRelease(""), "clusterID: e\n", map[string]string{
		"hub: {address: 'h:1', token: x}": "'/hub/token'",
		"hub: {tokenSecret: mine}":        "need hub.address",
		"tls: {fromHub: true}":            "need hub.address",
		"hub: {address: 'h:1', tokenSecret: mine}\ntls: {secretName: other}":      "not valid together with tls.secretName",
		"hub: {address: 'h:1', tokenSecret: mine, token: " + invitation + "}":     "want one of them",
		"hub: {address: 'h:1'}\ntls: {fromHub: true, secretName: atoll-worker-t}": "not valid together with tls.secretName",
	})
}

// What the worker has written to its Secret outlives upgrades and the release.
func TestAnIdentityOutlivesTheRelease(t *testing.T) {
	ctx := t.Context()
	namespace := restrictedNamespace(t, "worker-identity")
	t.Cleanup(func() { deleteCRDs(t) })
	release := workerRelease("hub: {address: hub.example.org:8443, token: " + invitation + "}")
	release.Namespace = namespace
	cluster := helm.In(east.Kubeconfig())
	notes, err := cluster.Install(ctx, release)
	must.Succeed(t, err)
	if !strings.Contains(notes, "It joins by its invitation") || strings.Contains(notes, "pki cluster") {
		t.Errorf("the notes:\n%s", notes)
	}
	secrets := core.CoreV1().Secrets(namespace)
	own, err := secrets.Get(ctx, "atoll-worker-identity", metav1.GetOptions{})
	must.Succeed(t, err)
	own.Data = map[string][]byte{"tls.key": []byte("key")}
	_, err = secrets.Update(ctx, own, metav1.UpdateOptions{})
	must.Succeed(t, err)
	kept := func(when string) {
		t.Helper()
		own, err := secrets.Get(ctx, "atoll-worker-identity", metav1.GetOptions{})
		if err != nil || string(own.Data["tls.key"]) != "key" {
			t.Errorf("%s the key is gone: %v", when, err)
		}
	}
	_, err = cluster.Upgrade(ctx, withValues(release, "logLevel: debug"))
	must.Succeed(t, err)
	kept("after an upgrade")
	must.Succeed(t, cluster.Rollback(ctx, release, 1))
	kept("after a rollback")
	must.Succeed(t, cluster.Uninstall(ctx, release))
	kept("after the release")
	left, err := remains(ctx, namespace)
	if diff := cmp.Diff([]string{"Secret/atoll-worker-identity"}, left); err != nil || diff != "" {
		t.Errorf("%v: left in the namespace (-want +got):\n%s", err, diff)
	}
	_, err = cluster.Install(ctx, release)
	must.Succeed(t, err)
	kept("after it was installed again")
	must.Succeed(t, cluster.Uninstall(ctx, release))
}
