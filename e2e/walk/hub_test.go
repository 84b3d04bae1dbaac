// SPDX-License-Identifier: Apache-2.0

//go:build kind

package walk_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link/pki"
)

// members are the host names of etcd's.
func members() (hosts []string) {
	for i := range 3 {
		hosts = append(hosts, fmt.Sprintf("etcd-%d.etcd.%s.svc", i, stack.Namespace))
	}
	return hosts
}

func applySecret(t *testing.T, node stack.Kubectl, name string, labels map[string]string, data map[string][]byte) {
	t.Helper()
	text, err := yaml.Marshal(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: name, Labels: labels}, Data: data,
	})
	must.Succeed(t, err)
	must.Succeed(t, stack.Apply(t.Context(), node, string(text)))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must.Succeed(t, err)
	return data
}

// installHub installs an etcd and a hub of three replicas on it, and makes an API key.
func installHub(t *testing.T) {
	ctx, east := t.Context(), nodes["east"]
	for _, node := range nodes {
		_, err := node.Kubectl(ctx, "create", "namespace", stack.Namespace)
		must.Succeed(t, err)
	}
	ca, err := pki.New(t.TempDir())
	must.Succeed(t, err)
	files, err := ca.Hub(members()...)
	must.Succeed(t, err)
	applySecret(t, east, "etcd-tls", nil, map[string][]byte{
		"tls.crt": read(t, files.Cert), "tls.key": read(t, files.Key), "ca.crt": read(t, files.CA),
	})
	image, err := east.Kubectl(ctx, "-n", "kube-system", "get", "pod", "etcd-"+east.Node(), "-o", "jsonpath={.spec.containers[0].image}")
	must.Succeed(t, err)
	must.Succeed(t, stack.Apply(ctx, east, strings.Replace(string(read(t, "etcd.yaml")), "image: IMAGE", "image: "+image, 1)))
	_, err = east.Kubectl(ctx, "-n", stack.Namespace, "rollout", "status", "statefulset/etcd", "--timeout", patience.String())
	must.Succeed(t, err)

	token := filepath.Join(dir, "token")
	keys, err := command(ctx, "atoll-hub", "api-key", "new", "--name", "me", "--all", "--scopes", "admin", "--token-file", token)
	must.Succeed(t, err)
	applySecret(t, east, "atoll-hub-api-keys", nil, map[string][]byte{"keys.yaml": []byte(keys)})
	seal := make([]byte, 32)
	_, _ = rand.Read(seal) // never fails
	applySecret(t, east, "atoll-e2b", nil, map[string][]byte{"key": []byte(hex.EncodeToString(seal))})
	_, err = helm.In(east.Kubeconfig()).Install(ctx, hubRelease("logLevel: info"))
	must.Succeed(t, err)
	file, err := trust(ctx)
	must.Succeed(t, err)
	endpoint = stack.Endpoint{Address: address, CAFile: file, TokenFile: token}
	hub, _, err = endpoint.Client()
	must.Succeed(t, err)
	t.Log(atollctl(t, "hub"))
}

// hubRelease is the hub's release with further values.
func hubRelease(more string) harness.Release {
	values := fmt.Sprintf(`
replicas: 3
%s
ca: {enabled: true, hubNames: [walk-hub-control-plane, 127.0.0.1]}
store: {etcd: {endpoints: ["https://%s:2379"], tlsSecretName: etcd-tls}}
e2b: {enabled: true, keySecretName: atoll-e2b, nodePort: 30083}
clustersProxy: {enabled: true}
pdb: {enabled: true}
service:
  api: {type: NodePort, nodePort: 30080}
  link: {type: NodePort, nodePort: 30443}
`, more, strings.Join(members(), `:2379", "https://`))
	return harness.Release{Name: "atoll-hub", Namespace: stack.Namespace, Chart: helm.Chart("hub"), Values: values}
}

// atollctl runs a command that must succeed.
func atollctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), "atollctl", args...)
	must.Succeed(t, err)
	return out
}

func ready(ctx context.Context) error {
	list, listed := hub.ListReplicas(ctx, &sandboxv1.ListReplicasRequest{})
	pods, err := nodes["east"].Kubectl(ctx, "-n", stack.Namespace, "get", "pods", "-l", "app.kubernetes.io/name=atoll-hub",
		"-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
	return errors.Join(listed, err, wait.If(len(list.GetReplicas()) == 3 && pods == "True True True", fmt.Sprint(pods, list)))
}

// killReplicas kills one replica of the hub after the other while callers claim.
func killReplicas(t *testing.T) {
	east := nodes["east"]
	for i := range 3 {
		load := claiming(t, callersEnv)
		pod := fmt.Sprintf("atoll-hub-%d", i)
		id, err := east.Kubectl(t.Context(), "-n", stack.Namespace, "get", "pod", pod,
			"-o", "jsonpath={.status.containerStatuses[0].containerID}")
		must.Succeed(t, err)
		load.claimedSince(t, 3)
		must.Succeed(t, east.Signal(t.Context(), id, "KILL"))
		load.claimedSince(t, 6)
		wait.For(t, patience, "three replicas", ready)
		load.end(t)
	}
}

// upgradeHub replaces the replicas one after the other, as an upgrade does, while callers claim.
func upgradeHub(t *testing.T) {
	load := claiming(t, callersEnv)
	load.claimedSince(t, 3)
	upgradeTo(t, hubRelease("logLevel: debug"))
	load.claimedSince(t, 3)
	load.end(t)
}

// upgradeTo runs helm upgrade, and returns once three replicas are ready.
func upgradeTo(t *testing.T, release harness.Release) {
	t.Helper()
	values := filepath.Join(t.TempDir(), "values.yaml")
	must.Succeed(t, os.WriteFile(values, []byte(release.Values), 0o600))
	_, err := command(t.Context(), "helm", "upgrade", release.Name, release.Chart, "--kubeconfig", nodes["east"].Kubeconfig(),
		"--namespace", release.Namespace, "--reset-values", "--values", values, "--wait", "--timeout", "6m")
	must.Succeed(t, err)
	wait.For(t, patience, "three replicas", ready)
}
