// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// change writes an Env's manifest with changes of its text, and applies it.
func (e *env) change(ctx context.Context, t *testing.T, folder string, changes ...string) {
	t.Helper()
	path := filepath.Join(folder, e.Name+".yaml")
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(path, []byte(strings.NewReplacer(changes...).Replace(string(text))), 0o600))
	atollctl(ctx, t, "apply", "-f", path)
}

// waitRollout waits until a rollout is in a state, at a stage.
func (e *env) waitRollout(ctx context.Context, t *testing.T, state sandboxv1.Rollout_State, stage int32) {
	t.Helper()
	wait.For(t, patience, fmt.Sprintf("the rollout of %s to be %s at stage %d", e.Name, state, stage), func(ctx context.Context) error {
		got, err := hub.GetRollout(ctx, &sandboxv1.GetRolloutRequest{Namespace: namespace, Name: e.Name})
		return wait.If(err == nil && got.GetState() == state && got.GetStage() == stage, fmt.Sprint(got, err))
	})
}

// I3: a hub that is killed during a rollout goes on in order: each cluster gets the change, and none before its stage.
func TestI3ARolloutOutlivesItsHub(t *testing.T) {
	ctx := testContext(t)
	e := declareEnv(t, "cat-staged", equally(1))
	folder := catalogued(t, e)
	atollctl(ctx, t, "apply", "-f", folder)
	e.waitReady(ctx, t, e.replicas())
	const plan = "{stages: [[east], [west], [north]], pause: manual}"
	e.change(ctx, t, folder, "overrides: {", "overrides: {image: registry.example/python:2, ",
		"annotations: {", `annotations: {agentbox.navix.sh/rollout: "`+plan+`", `)
	e.waitRollout(ctx, t, sandboxv1.Rollout_PAUSED, 1)
	must.Succeed(t, restart(ctx, atoll.Hub))
	e.waitRollout(ctx, t, sandboxv1.Rollout_PAUSED, 1)
	e.waitCatalogued(ctx, t, "east:APPLIED@2", "north:APPLIED@1", "west:APPLIED@1")

	atollctl(ctx, t, "envs", "rollout", "resume", namespace+"/"+e.Name)
	must.Succeed(t, restart(ctx, atoll.Hub))
	e.waitRollout(ctx, t, sandboxv1.Rollout_PAUSED, 2)
	e.waitCatalogued(ctx, t, "east:APPLIED@2", "north:APPLIED@1", "west:APPLIED@2")

	atollctl(ctx, t, "envs", "rollout", "resume", namespace+"/"+e.Name)
	e.waitRollout(ctx, t, sandboxv1.Rollout_DONE, 3)
	e.waitCatalogued(ctx, t, "east:APPLIED@2", "north:APPLIED@2", "west:APPLIED@2")
}

// I3: a worker that is killed while it applies many Envs has all of them at last, at their latest revisions and once.
func TestI3AWorkerIsKilledWhileItApplies(t *testing.T) {
	ctx := testContext(t)
	var envs []*env
	for i := range 8 {
		envs = append(envs, declareEnv(t, fmt.Sprintf("cat-many-%d", i), equally(1)))
	}
	folder := catalogued(t, envs...)
	atollctl(ctx, t, "apply", "-f", folder)
	for revision := 1; revision <= 2; revision++ {
		if revision == 2 {
			for _, e := range envs {
				e.change(ctx, t, folder, "overrides: {", "overrides: {image: registry.example/python:2, ")
			}
		}
		must.Succeed(t, restart(ctx, atoll.Worker("west")))
		for _, e := range envs {
			e.waitCatalogued(ctx, t, fmt.Sprintf("east:APPLIED@%d", revision), fmt.Sprintf("north:APPLIED@%d", revision),
				fmt.Sprintf("west:APPLIED@%d", revision))
		}
	}
	for _, e := range envs {
		is, err := e.get(ctx, "west")
		must.Succeed(t, err)
		if is.Spec.Overrides.Image != "registry.example/python:2" || len(is.Spec.Clusters) != 1 {
			t.Errorf("west has %+v", is.Spec)
		}
		e.waitPods(ctx, t, "west", 1)
	}
}
