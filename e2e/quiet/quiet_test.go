// SPDX-License-Identifier: Apache-2.0

package quiet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/quiet"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

var (
	envs = flag.Int("envs", 50, "Envs to make")
	pods = flag.Int("pods", 10, "Pods of each")
	idle = flag.Duration("idle", 20*time.Second, "how long nothing may be written; twice the resync at least")
)

const cluster = "quiet"

var (
	set   *plane.Set
	atoll *stack.Stack
)

func TestMain(m *testing.M) {
	flag.Parse()
	stack.RunSuite("quiet", func(ctx context.Context, dir, logDir string) (code int, err error) {
		bin := filepath.Join(dir, "bin")
		if err := stack.Build(ctx, bin, true); err != nil {
			return 1, err
		}
		if set, err = plane.Up(ctx, plane.Options{AuditLog: true, LogDir: filepath.Join(dir, "planes")}, cluster); err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, set.Down(ctx)) }()
		if atoll, err = stack.Start(ctx, set, stack.Options{
			BinDir: bin, LogDir: logDir, Log: os.Stderr, WorkerArgs: []string{"--team-quotas"},
		}); err != nil {
			return 1, err
		}
		code = m.Run()
		return code, atoll.Close()
	})
}

// quotas let the team poor have three Pods.
const quotas = `apiVersion: v1
kind: ConfigMap
metadata: {name: atoll-team-quotas, namespace: atoll-system}
data:
  poor: "maxReplicas: 3"
---
`

// starve makes a pool that asks for five Pods and is held to three: when it is made, and when a user raises its replicas.
func starve(t *testing.T, p *plane.Plane, ground quiet.Ground) {
	t.Helper()
	ctx := t.Context()
	await := func(what, path, want string) {
		t.Helper()
		wait.For(t, time.Minute, what, func(ctx context.Context) error {
			out, err := p.Kubectl(ctx, "-n", "quiet", "get", "sandboxpool", "starved", "-o", "jsonpath="+path)
			return wait.If(err == nil && strings.Contains(out, want), fmt.Sprint(out, err))
		})
	}
	starved := ground.Env("starved", 5)
	starved.Members[0].Team, starved.Members[0].Resources = "poor", "{requests: {cpu: 1m}}"
	must.Succeed(t, stack.Apply(ctx, p, quotas+starved.EnvManifest()))
	await("what the team may have", "{.spec.replicas} {.status.idleReplicas}", "3 3")
	raise := `[{"op":"replace","path":"/spec/clusters/0/members/0/spec/replicas","value":5}]`
	if out, err := p.Kubectl(ctx, "-n", "quiet", "patch", "sandboxenv", "starved", "--type=json", "-p", raise); err != nil {
		t.Fatal(err, out)
	}
	await("the user's replicas", "{.spec.replicas} {.status.idleReplicas} {.status.conditions}", "5 3 ")
	await("the reason", "{.status.conditions}", "the quota of team poor is used up: 4 of 3 replicas would be held")
}

// TestQuiet: at rest Atoll writes nothing but its lease, also where a quota holds a pool to less than it asks for; and a pool that is
// claimed from as fast as it can be writes its status twice a second at most.
func TestQuiet(t *testing.T) {
	ctx, p := t.Context(), set.Plane(cluster)
	kube, err := atoll.Kube(cluster)
	must.Succeed(t, err)
	ground := quiet.Ground{Kube: kube, Cluster: cluster, Namespace: "quiet"}
	must.Succeed(t, ground.Prepare(ctx))
	begun := time.Now()
	must.Succeed(t, ground.Fill(ctx, *envs, *pods))
	t.Logf("%d Envs with %d Pods each took %s", *envs, *pods, time.Since(begun).Round(time.Millisecond))
	starve(t, p, ground)
	must.Succeed(t, quiet.Settle(ctx, p, 3*time.Second, time.Minute))
	begun = time.Now()
	select {
	case <-time.After(*idle):
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	wrote, others, err := quiet.Since(p, begun, time.Now())
	must.Succeed(t, err)
	if len(wrote) > 0 {
		t.Errorf("written within %s of rest: %s", *idle, wrote)
	}
	t.Logf("by others: %s", others)
	busy(t, ctx, p, ground)
}

func busy(t *testing.T, ctx context.Context, p *plane.Plane, ground quiet.Ground) {
	t.Helper()
	const size, callers = 120, 10
	must.Succeed(t, ground.CreateEnv(ctx, "busy", size))
	hub, err := atoll.HubClient()
	must.Succeed(t, err)
	wait.For(t, time.Minute, "the busy pool", func(ctx context.Context) error {
		ready, err := hub.ReadyIdle(ctx, ground.Namespace, "busy")
		return wait.If(ready[cluster] == size, fmt.Sprint(ready, err))
	})
	begun := time.Now()
	claims := load.Closed(ctx, size, callers, func(ctx context.Context, _ int) error {
		_, err := hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Namespace: ground.Namespace, Env: "busy"})
		return err
	})
	must.Succeed(t, claims.Err)
	must.Succeed(t, quiet.Settle(ctx, p, 3*time.Second, time.Minute))
	most, all, err := quiet.BusiestSecond(p, "sandboxpools", ground.Namespace, "busy", begun, time.Now())
	must.Succeed(t, err)
	t.Logf("%d claims in %s, %d writes of status, %d in the busiest second", size, claims.Took.Round(time.Millisecond), all, most)
	if most > 2 || all == 0 {
		t.Errorf("%d writes of status in a second, of %d", most, all)
	}
}
