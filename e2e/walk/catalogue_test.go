// SPDX-License-Identifier: Apache-2.0

//go:build kind

package walk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	numberOfEnvs, numberOfTemplates = 20, 5
	// callersEnv is the one that callers claim from.
	callersEnv = "env-00"
)

// clustersOf are those that an Env has members in: the first Envs are in all clusters. More Pods in those that come while callers claim
// would measure how fast one machine starts containers.
func clustersOf(i int) []string {
	if i < numberOfTemplates {
		return []string{"east", "west", "north", "south"}
	}
	return []string{"east", "west"}
}

func manifestOf(i int) stack.Env {
	e := stack.Env{
		Name: fmt.Sprintf("env-%02d", i), Template: fmt.Sprintf("template-%d", i%numberOfTemplates), Image: poolImage,
		Pod: []func(*corev1.PodSpec){stack.ClosedPod},
	}
	replicas := 1
	if e.Name == callersEnv {
		replicas = 4
	}
	for _, id := range clustersOf(i) {
		e.Members = append(e.Members, stack.Member{Cluster: id, Replicas: replicas, Resources: "{requests: {cpu: 1m, memory: 8Mi}}"})
	}
	return e
}

// applied is what apply prints of an Env.
var applied = regexp.MustCompile(`\(revision (\d+)\)`)

// apply puts an Env with a change of its text into the catalogue, and returns its revision: as printed, as another replica of the hub may
// hear of it a moment later.
func apply(t *testing.T, i int, changes ...string) int32 {
	t.Helper()
	file := filepath.Join(t.TempDir(), "env.yaml")
	text := strings.NewReplacer(changes...).Replace(manifestOf(i).EnvManifest())
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	out := atollctl(t, "apply", "-f", file)
	t.Log(strings.TrimSpace(out))
	found := applied.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("apply prints no revision: %s", out)
	}
	revision, err := strconv.ParseInt(found[1], 10, 32)
	must.Succeed(t, err)
	return int32(revision)
}

// waitCatalogued waits until clusters have a revision of an Env.
func waitCatalogued(t *testing.T, i int, revision int32, state sandboxv1.CatalogCluster_State, in ...string) {
	t.Helper()
	name := manifestOf(i).Name
	wait.For(t, patience, fmt.Sprintf("%s to be %s at revision %d in %v", name, state, revision, in), func(ctx context.Context) error {
		env, err := hub.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: "default", Name: name})
		if err != nil {
			return err
		}
		found := 0
		for _, id := range in {
			for _, c := range env.GetCatalog().GetClusters() {
				if c.GetClusterId() == id && c.GetState() == state && (c.GetRevision() == revision || state != sandboxv1.CatalogCluster_APPLIED) {
					found++
				}
			}
		}
		return wait.If(found == len(in), env.GetCatalog())
	})
}

// fillCatalogue applies one folder and waits until the clusters that have joined serve all of it.
func fillCatalogue(t *testing.T) {
	folder := t.TempDir()
	for i := range numberOfEnvs {
		e := manifestOf(i)
		text := e.EnvManifest()
		if i < numberOfTemplates {
			template, err := e.TemplateManifest()
			must.Succeed(t, err)
			text = template + "---\n" + text
		}
		must.Succeed(t, os.WriteFile(filepath.Join(folder, e.Name+".yaml"), []byte(text), 0o600))
	}
	if out := atollctl(t, "apply", "-f", folder); strings.Count(out, "created (revision 1)") != numberOfEnvs+numberOfTemplates {
		t.Errorf("apply prints\n%s", out)
	}
	for i := range numberOfEnvs {
		waitCatalogued(t, i, 1, sandboxv1.CatalogCluster_APPLIED, "east", "west")
	}
	atollctl(t, "envs", "--wait=ready", "--timeout", patience.String())
	wait.For(t, patience, "callers to have room", func(ctx context.Context) error {
		idle, err := hub.ReadyIdle(ctx, "default", callersEnv)
		return wait.If(err == nil && idle["east"] == 4 && idle["west"] == 4, fmt.Sprint(idle, err))
	})
}

// inStages is an annotation of an Env.
func inStages(plan string) []string {
	return []string{"namespace: default", `namespace: default, annotations: {agentbox.navix.sh/rollout: "` + plan + `"}`}
}

const stagesPlan = "{stages: [[east], [west], [north, south]], onFailure: rollback, abortOn: {notReadyFor: 40s}}"

func waitRollout(t *testing.T, i int, want sandboxv1.Rollout_State) *sandboxv1.Rollout {
	t.Helper()
	var rollout *sandboxv1.Rollout
	wait.For(t, patience, "the rollout to be "+want.String(), func(ctx context.Context) (err error) {
		rollout, err = hub.GetRollout(ctx, &sandboxv1.GetRolloutRequest{Namespace: "default", Name: manifestOf(i).Name})
		return errors.Join(err, wait.If(rollout.GetState() == want, rollout))
	})
	return rollout
}

func changeInStages(t *testing.T) {
	load := claiming(t, callersEnv)
	revision := apply(t, 0, append(inStages(stagesPlan), "replicas: 4", "replicas: 5")...)
	waitRollout(t, 0, sandboxv1.Rollout_DONE)
	waitCatalogued(t, 0, revision, sandboxv1.CatalogCluster_APPLIED, "east", "west", "north", "south")
	load.end(t)
}

// breakClaims replaces a pool of every cluster by one whose Pods fit on no node.
func breakClaims(t *testing.T) {
	uid := func() string {
		t.Helper()
		out, err := nodes["west"].Kubectl(t.Context(), "get", "sandboxpool", manifestOf(0).Pool("west"), "-o", "jsonpath={.metadata.uid}")
		must.Succeed(t, err)
		return out
	}
	before := uid()
	load := claiming(t, callersEnv)
	revision := apply(t, 0, append(inStages(stagesPlan),
		"replicas: 4", "replicas: 5", "name: env-00-", "name: huge-", "cpu: 1m", "cpu: 900")...)
	rollout := waitRollout(t, 0, sandboxv1.Rollout_UNDONE)
	t.Log(rollout)
	if rollout.GetStages()[1].GetState() != "NotBegun" {
		t.Errorf("the second stage is %s", rollout.GetStages()[1].GetState())
	}
	waitCatalogued(t, 0, revision+1, sandboxv1.CatalogCluster_APPLIED, "east", "west", "north", "south")
	if after := uid(); after != before {
		t.Errorf("west's pool is another one: %s, it was %s", after, before)
	}
	serves(t, "east")
	load.end(t)
}

// keepField changes a field that a user has changed in west.
func keepField(t *testing.T) {
	image := func() string {
		t.Helper()
		out, err := nodes["west"].Kubectl(t.Context(), "get", "sandboxenv", "env-01", "-o", "jsonpath={.spec.overrides.image}")
		must.Succeed(t, err)
		return out
	}
	_, err := nodes["west"].Kubectl(t.Context(), "patch", "sandboxenv", "env-01", "--type", "merge", "--field-manager", "kubectl-edit",
		"-p", `{"spec":{"overrides":{"image":"`+poolImage+`"}}}`)
	must.Succeed(t, err)
	revision := apply(t, 1, "overrides: {", "overrides: {image: registry.example/python:2, ")
	waitCatalogued(t, 1, revision, sandboxv1.CatalogCluster_APPLIED, "east", "north", "south")
	waitCatalogued(t, 1, revision, sandboxv1.CatalogCluster_CONFLICT, "west")
	if got := image(); got != poolImage {
		t.Errorf("the user's image is %s", got)
	}
	if out := atollctl(t, "envs", "default/env-01"); !strings.Contains(out, "kubectl-edit") {
		t.Errorf("nothing names the owner of the field:\n%s", out)
	}
	revision = apply(t, 1)
	waitCatalogued(t, 1, revision, sandboxv1.CatalogCluster_APPLIED, "east", "west", "north", "south")
}

// beAway freezes west's node during two changes: it gets the latest.
func beAway(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	must.Succeed(t, nodes["west"].PauseNode(ctx))
	resumed := false
	t.Cleanup(func() {
		if !resumed {
			must.Succeed(t, nodes["west"].ResumeNode(ctx))
		}
	})
	held := claiming(t, callersEnv) // its claim may be one that west has, and then it waits for west
	apply(t, 2, "replicas: 1", "replicas: 2")
	revision := apply(t, 2, "replicas: 1", "replicas: 3")
	waitCatalogued(t, 2, revision, sandboxv1.CatalogCluster_APPLIED, "east", "north", "south")
	waitCatalogued(t, 2, revision, sandboxv1.CatalogCluster_PENDING, "west")
	waitState(t, "west", sandboxv1.ClusterState_UNREACHABLE)
	load := claiming(t, callersEnv)
	load.claimedSince(t, 6)
	must.Succeed(t, nodes["west"].ResumeNode(ctx))
	resumed = true
	waitCatalogued(t, 2, revision, sandboxv1.CatalogCluster_APPLIED, "west")
	serves(t, "west")
	load.end(t)
	held.end(t)
}
