// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy_test uses a cluster's API server through the hub as people do: with kubectl, by the kubeconfig that atollctl prints.
// Hub, worker, API server and kubectl are real; the kubelet is the planes'. What users may do is compared with direct access.
package kubeproxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/stack"
)

const cluster = "east"

var (
	atoll   *stack.Stack
	planes  *plane.Set
	scratch string
	server  string // URL of the hub's API, with TLS
)

// keys are the callers, by the flags of their API keys.
var keys = map[string]string{
	"alice": "--all --scopes=admin", "bob": "--all --scopes=admin", "carol": "--team=red --all-namespaces --scopes=read",
	"look": "--all --scopes=read", "bound": "--team=blue --all-namespaces --scopes=admin",
}

func TestMain(m *testing.M) {
	stack.RunSuite("kubeproxy", func(ctx context.Context, dir, logDir string) (code int, err error) {
		scratch = dir
		bin := filepath.Join(dir, "bin")
		build := func(ctx context.Context) error { return stack.Build(ctx, bin, false) }
		if planes, err = stack.Prepare(ctx, build, plane.Options{LogDir: filepath.Join(dir, "planes"), AuditLog: true}, cluster); err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, planes.Down(ctx)) }()
		keyFile, _, err := stack.APIKeys(ctx, bin, dir, keys)
		if err != nil {
			return 1, err
		}
		addresses, err := ports.Free(1)
		if err != nil {
			return 1, err
		}
		_, port, err := net.SplitHostPort(addresses[0])
		if err != nil {
			return 1, err
		}
		server = "https://" + addresses[0]
		if atoll, err = stack.Start(ctx, planes, stack.Options{
			BinDir: bin, LogDir: logDir, Log: os.Stderr,
			// Beyond loopback the API has TLS, without which kubectl sends no token.
			HubArgs: []string{
				"--api-keys-file=" + keyFile, "--listen=0.0.0.0:" + port, "--clusters-proxy", "--audit=file:" + auditFile(),
			},
			WorkerArgs: []string{"--serve-kubernetes"},
		}); err != nil {
			return 1, err
		}
		if err := prepare(ctx); err != nil {
			return 1, errors.Join(err, atoll.Close())
		}
		code = m.Run()
		return code, atoll.Close()
	})
}

func auditFile() string            { return filepath.Join(scratch, "audit", "audit.log") }
func tokenFile(name string) string { return filepath.Join(scratch, name+".token") }
func program(name string) string   { return filepath.Join(scratch, "bin", name) }

// prepare gives the worker the right to impersonate, and users their rights: in the hub, and in the cluster.
func prepare(ctx context.Context) error {
	direct := atoll.Cluster(cluster)
	if _, err := direct.Kubectl(ctx, "apply", "--server-side", "-f",
		filepath.Join("..", "..", "charts", "worker", "files", "optional", "kubernetes_proxy.yaml")); err != nil {
		return err
	}
	if err := stack.Apply(ctx, direct, rights); err != nil {
		return err
	}
	policy := filepath.Join(scratch, "access.yaml")
	if err := os.WriteFile(policy, []byte(access), 0o600); err != nil {
		return err
	}
	_, err := atollctl(ctx, "alice", "access", "apply", "-f", policy)
	return err
}

const access = `
roles: [{name: proxy, rules: [{resources: [clusters/proxy], verbs: [create]}]}]
bindings: [{name: red, role: proxy, namespaces: ["*"], clusters: [east], subjects: [{kind: Team, name: red}]}]
`

const rights = `
apiVersion: v1
kind: Namespace
metadata: {name: shared}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice, namespace: shared}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "atoll:key:alice"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bob, namespace: shared}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "atoll:key:bob"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: red}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "atoll:team:red"}]
`

func atollctl(ctx context.Context, who string, args ...string) (string, error) {
	flags := []string{"--server", server, "--ca-file", atoll.HubCA(), "--token-file", tokenFile(who)}
	cmd := exec.CommandContext(ctx, program("atollctl"), append(flags, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "ATOLL_CONFIG_HOME="+filepath.Join(scratch, "contexts"))
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("atollctl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// caller uses kubectl through the hub.
type caller struct {
	t          *testing.T
	kubeconfig string
	env        []string
}

func as(t *testing.T, who string) caller {
	t.Helper()
	return of(t, who, cluster)
}

func of(t *testing.T, who, cluster string) caller {
	t.Helper()
	text, err := atollctl(t.Context(), who, "kubeconfig", cluster, "--namespace", "shared")
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	if token, err := os.ReadFile(tokenFile(who)); err != nil || strings.Contains(text, strings.TrimSpace(string(token))) {
		t.Fatalf("the kubeconfig has the token in it, or there is none: %v", err)
	}
	return caller{t: t, kubeconfig: path}
}

// command prepares kubectl, which ends with ctx.
func (c caller) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, planes.KubectlPath(), args...)
	cmd.Env = append(append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "KUBECACHEDIR="+filepath.Join(scratch, "cache")), c.env...)
	return cmd
}

// try runs kubectl, and returns everything it printed.
func (c caller) try(input string, args ...string) (string, error) {
	cmd := c.command(c.t.Context(), args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs kubectl, which must succeed.
func (c caller) run(input string, args ...string) string {
	c.t.Helper()
	out, err := c.try(input, args...)
	if err != nil {
		c.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// refused runs kubectl, which must fail and say why.
func (c caller) refused(why string, args ...string) {
	c.t.Helper()
	if out, err := c.try("", args...); err == nil || !strings.Contains(out, why) {
		c.t.Errorf("kubectl %s: %v: %s, want %q", strings.Join(args, " "), err, out, why)
	}
}
