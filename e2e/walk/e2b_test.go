// SPDX-License-Identifier: Apache-2.0

//go:build kind

package walk_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"navix.sh/atoll/api/envd"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/e2b/npm"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/client"
	"navix.sh/atoll/pkg/link/pki"
)

// The images in which E2B's stock client is tried; without them it is not, as it needs node, npm, and images with a shell.
var (
	agentImages = flag.String("images", "",
		"images with a shell, separated by commas, in which E2B's npm package is tried (needs node 20 and npm); the nodes have or pull them")
	agentArchives = flag.String("archives", "", "archives of images that are loaded into the clusters first, separated by commas")
)

func listOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

const (
	e2bAddress = "127.0.0.1:30283" // as clusters/walk-hub.yaml maps it
	workerAPI  = "atoll-worker-api"
)

// serveE2B makes every call of E2B's stock client in sandboxes of each image: at the hub, and at the worker of west without it.
func serveE2B(t *testing.T) {
	var envs []string
	folder := t.TempDir()
	for i, image := range listOf(*agentImages) {
		const resources = "{requests: {cpu: 20m, memory: 16Mi}, limits: {memory: 512Mi}}" // what pausing frees
		e := stack.Env{Name: fmt.Sprintf("agents-%d", i), Image: image, Runtime: "e2b", Port: envd.Port, Members: []stack.Member{
			{Cluster: "east", Replicas: 2, Resources: resources}, {Cluster: "west", Replicas: 2, Resources: resources},
		}}
		manifest, err := e.Manifest()
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(filepath.Join(folder, e.Name+".yaml"), []byte(manifest), 0o600))
		envs = append(envs, e.Name)
	}
	atollctl(t, "apply", "-f", folder)
	for _, name := range envs {
		wait.For(t, patience, name+" to have Pods", func(ctx context.Context) error {
			idle, err := hub.ReadyIdle(ctx, "default", name)
			return wait.If(err == nil && idle["east"] == 2 && idle["west"] == 2, fmt.Sprint(idle, err))
		})
	}
	key := regexp.MustCompile(`e2b_[0-9a-f]+`).FindString(atollctl(t, "keys", "create", "agents", "--all", "--e2b"))
	callAll(t, "hub", e2bAddress, key, endpoint.CAFile, envs)
	leavesNoTrace(t, envs[0])
	address, token, ca := openWorkerAPI(t)
	callAll(t, "worker", address, "e2b_"+hex.EncodeToString([]byte(token)), ca, envs)
	for _, name := range envs { // their Pods would leave little room for what follows
		atollctl(t, "delete", "env", "default/"+name)
		wait.For(t, patience, name+" to be gone", func(ctx context.Context) error {
			left, err := nodes["east"].Kubectl(ctx, "get", "sandboxenv,pods", "-o", "name")
			return wait.If(err == nil && !strings.Contains(left, name), left)
		})
	}
}

func callAll(t *testing.T, at, address, key, ca string, envs []string) {
	for i, image := range listOf(*agentImages) {
		t.Run(at+"/"+image, func(t *testing.T) {
			t.Logf("%s: %s", at, image)
			origin := "https://" + address
			all, err := npm.Calls(t.Context(), root, []string{
				"E2B_API_URL=" + origin, "E2B_SANDBOX_URL=" + origin, "E2B_API_KEY=" + key, "NODE_EXTRA_CA_CERTS=" + ca, "NETWORK_POLICIES=1",
			}, envs[i], npm.Packages[0])
			for _, one := range all {
				t.Logf("%s %s %s", one.Result, one.Call, one.Detail)
			}
			must.Succeed(t, err)
		})
	}
}

// leavesNoTrace looks for the environment of a sandbox on every node: in the data of its etcd and the hub's, in volumes and in logs.
func leavesNoTrace(t *testing.T, env string) {
	t.Helper()
	ctx := t.Context()
	transport, err := endpoint.HTTPClient()
	must.Succeed(t, err)
	defer transport.CloseIdleConnections()
	api, err := client.New(client.Options{Server: endpoint.URL(), HTTP: transport})
	must.Succeed(t, err)
	canary := "canary-" + rand.Text()
	sandbox, err := api.Create(ctx, &sandboxv1.CreateSandboxRequest{Env: env, EnvVars: map[string]string{"CANARY": canary}})
	must.Succeed(t, err)
	got, err := sandbox.Run(ctx, "sh", "-c", "echo $CANARY")
	if err != nil || string(got.Stdout) != canary+"\n" {
		t.Errorf("the command printed %q, %v", got.Stdout, err)
	}
	for id, node := range nodes {
		const script = `grep -rlaF "$1" /var/lib/etcd /var/lib/kubelet/pods /var/log; [ $? = 1 ]`
		if found, err := node.Exec(ctx, "sh", "-c", script, "sh", canary); err != nil {
			t.Errorf("the environment of a sandbox is on the node of %s, in %s: %v", id, found, err)
		}
	}
	must.Succeed(t, sandbox.Release(ctx))
}

// openWorkerAPI has west's worker serve its local API and E2B, as its chart does, and forwards the port for E2B to this machine. It returns
// a token of the cluster that may use sandboxes, and the CA.
func openWorkerAPI(t *testing.T) (address, token, ca string) {
	ctx, west := t.Context(), nodes["west"]
	authority, err := pki.New(t.TempDir())
	must.Succeed(t, err)
	files, err := authority.Hub(workerAPI+"."+stack.Namespace+".svc", "127.0.0.1")
	must.Succeed(t, err)
	applySecret(t, west, workerAPI+"-tls", nil, map[string][]byte{"tls.crt": read(t, files.Cert), "tls.key": read(t, files.Key)})
	seal := make([]byte, 32)
	_, _ = rand.Read(seal) // never fails
	applySecret(t, west, "atoll-e2b", nil, map[string][]byte{"key": []byte(hex.EncodeToString(seal))})
	_, err = command(ctx, "helm", "upgrade", "atoll-worker", helm.Chart("worker"), "--kubeconfig", west.Kubeconfig(), "-n", stack.Namespace,
		"--reuse-values", "--set", "localAPI.enabled=true,localAPI.tlsSecretName="+workerAPI+"-tls,e2b.enabled=true,e2b.keySecretName=atoll-e2b",
		"--wait", "--timeout", "5m")
	must.Succeed(t, err)
	for _, args := range [][]string{
		{"apply", "-f", filepath.Join(root, "charts", "hub", "files", "rbac", "roles.yaml")},
		{"create", "serviceaccount", "agent", "-n", "default"},
		// The client lists over all namespaces.
		{"create", "clusterrolebinding", "agent", "--clusterrole=atoll-developer", "--serviceaccount=default:agent"},
	} {
		_, err := west.Kubectl(ctx, args...)
		must.Succeed(t, err)
	}
	token, err = west.Kubectl(ctx, "create", "token", "agent", "-n", "default", "--audience", "atoll", "--duration", "2h")
	must.Succeed(t, err)
	return forward(t, west.Kubeconfig(), "service/"+workerAPI, "8083"), strings.TrimSpace(token), files.CA
}

// forward forwards a port of a cluster to this machine until the test ends.
func forward(t *testing.T, kubeconfig, to, port string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "kubectl", "--kubeconfig", kubeconfig, "-n", stack.Namespace, "port-forward", to, ":"+port)
	address, err := stack.Forward(cmd)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended it
	return address
}
