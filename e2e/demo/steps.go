// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

//go:embed manifests/template.yaml
var templateManifest string

//go:embed manifests/env.yaml
var envManifest string

// step does one thing, checks it, and returns a line about the result.
type step struct {
	name string
	run  func(context.Context) (string, error)
}

// steps runs the demo in order and stops at the first failed step.
func (w *world) steps(ctx context.Context) error {
	steps := []step{
		{"control planes", w.bringUp},
		{"hub and workers", w.startAtoll},
		{"apply template and Env", w.apply},
		{"warm Pods", w.warm},
		{"claims follow priority and room", w.spread},
		{"exec into another cluster's sandbox", w.execute},
		{"a cluster runs out", w.overflow},
		{"swap an image in place", w.swap},
		{"release and recycle", w.releaseAll},
		{"foreign segments in every cluster", w.foreign},
		{"hub killed, local claims go on", w.hubDown},
		{"hub back, same key, same sandbox", w.hubBack},
		{"one cluster cut off, the rest unharmed", w.cutOff},
		{"a burst makes a small pool grow", w.burst},
		{"a team's quota bounds it", w.quota},
		{"every invariant that can be seen holds", w.verify},
	}
	if w.ground.forE2B() {
		steps = slices.Insert(steps, len(steps)-1, step{"an E2B client, in one cluster and then in another", w.e2b})
	}
	if w.hubs > 1 {
		at := slices.IndexFunc(steps, func(s step) bool { return s.name == "hub killed, local claims go on" })
		steps = slices.Insert(steps, at, step{"one replica of the hub killed under claims", w.replicaKilled})
	}
	for i, s := range steps {
		fmt.Fprintf(w.out, "[%2d/%d] %s\n", i+1, len(steps), s.name)
		begin := time.Now()
		detail, err := s.run(ctx)
		result := stepResult{Name: s.name, OK: err == nil, Seconds: time.Since(begin).Seconds(), Detail: detail}
		if err != nil {
			result.Detail = err.Error()
		}
		w.done = append(w.done, result)
		if err != nil {
			return fmt.Errorf("step %q: %w", s.name, err)
		}
		fmt.Fprintf(w.out, "      %s (%.1f s)\n", detail, result.Seconds)
	}
	return nil
}

func (w *world) apply(ctx context.Context) (string, error) {
	for _, id := range clusters {
		for _, manifest := range []string{templateManifest, envManifest} {
			if err := stack.Apply(ctx, w.stack.Cluster(id), manifest); err != nil {
				return "", fmt.Errorf("applying in %s: %w", id, err)
			}
		}
	}
	return "one manifest, applied unchanged in every cluster", nil
}

func (w *world) warm(ctx context.Context) (string, error) {
	if err := w.waitWarm(ctx); err != nil {
		return "", err
	}
	return "6 ready in east, 4 in north, 8 in west, as the hub sees them", nil
}

// spread claims 8 of the 10 sandboxes of the preferred clusters: the third, of lower preference, must get none.
func (w *world) spread(ctx context.Context) (string, error) {
	got, err := w.claimMany(ctx, 8)
	if err != nil {
		return "", err
	}
	if got["west"] != 0 || got["east"] == 0 || got["north"] == 0 {
		return "", fmt.Errorf("claims went to %v, want east and north alone, both", got)
	}
	return fmt.Sprintf("8 claims: %d in east, %d in north (priority 0), none in west (priority 10)", got["east"], got["north"]), nil
}

// execute runs a command, through the hub, in a sandbox of a cluster that is not the hub's.
func (w *world) execute(ctx context.Context) (string, error) {
	var id string
	for _, sandbox := range w.caller.Holdings.Held() {
		if sandbox.GetClusterId() == "north" {
			id = sandbox.GetId()
		}
	}
	const code = 7
	args := append([]string{"exec"}, w.stack.HubEndpoint().Flags()...)
	args = append(append(args, id, "--"), w.ground.exits(code)...)
	begin := time.Now()
	out, err := exec.CommandContext(ctx, filepath.Join(w.binDir, "atollctl"), args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		return "", fmt.Errorf("atollctl exec ended with %w, want exit code %d\n%s", err, code, out)
	}
	return fmt.Sprintf("atollctl exec %s -- …: exit code %d, after %d ms", id, code, time.Since(begin).Milliseconds()), nil
}

// overflow claims more than the preferred clusters have.
func (w *world) overflow(ctx context.Context) (string, error) {
	if err := w.waitCounted(ctx); err != nil {
		return "", err
	}
	got, err := w.claimMany(ctx, 5)
	if err != nil {
		return "", err
	}
	if got["west"] != 3 {
		return "", fmt.Errorf("claims went to %v, want the last 2 of east and north, then 3 in west", got)
	}
	decision, err := w.hub.ExplainEnv(ctx, &sandboxv1.ExplainEnvRequest{Namespace: envNamespace, Name: envName})
	if err != nil {
		return "", fmt.Errorf("asking for the reason: %w", err)
	}
	var reasons []string
	for _, c := range decision.GetCandidates() {
		reasons = append(reasons, fmt.Sprintf("%s %s/%s (%d ready)", c.GetClusterId(), c.GetTier(), c.GetReason(), c.GetReadyIdle()))
		if c.GetClusterId() != "west" && c.GetReadyIdle() != 0 {
			return "", fmt.Errorf("%s should be out of ready Pods, but explain says %v", c.GetClusterId(), c)
		}
	}
	if decision.GetClusterId() != "west" {
		return "", fmt.Errorf("explain says that the next claim goes to %q", decision.GetClusterId())
	}
	return fmt.Sprintf("3 of 5 claims went to west; explain: %s", strings.Join(reasons, ", ")), nil
}

// waitCounted waits until the clusters have reported all claims. Until then the hub reserves capacity that may be taken, and a
// claim may go elsewhere although there is room.
func (w *world) waitCounted(ctx context.Context) error {
	return w.waitFor(ctx, "all claims to be reported", time.Minute, func(ctx context.Context) error {
		decision, err := w.hub.ExplainEnv(ctx, &sandboxv1.ExplainEnvRequest{Namespace: envNamespace, Name: envName})
		if err != nil {
			return err
		}
		return wait.If(!slices.ContainsFunc(decision.GetCandidates(), func(c *sandboxv1.Candidate) bool { return c.GetInFlight() > 0 }), decision)
	})
}

// The images of the template and the swap. On planes the names have no images.
const (
	idleImage = "registry.example/python:3.13"
	swapImage = "registry.example/python:3.14"
)

func (w *world) swap(ctx context.Context) (string, error) {
	begin := time.Now()
	sandbox, err := w.claim(ctx, w.hub, &sandboxv1.CreateSandboxRequest{Image: swapImage})
	if err != nil {
		return "", err
	}
	took := time.Since(begin)
	running, err := w.stack.Cluster(sandbox.GetClusterId()).Kubectl(ctx, "-n", envNamespace, "get", "pod", sandbox.GetPod(), "-o",
		"jsonpath={.metadata.uid} {.status.containerStatuses[0].image} {.status.containerStatuses[0].restartCount}")
	if err != nil {
		return "", fmt.Errorf("reading the Pod: %w", err)
	}
	uid, rest, _ := strings.Cut(running, " ")
	if uid != sandbox.GetPodUid() || !strings.HasPrefix(rest, swapImage) || sandbox.GetPhase() != sandboxv1.Phase_RUNNING {
		return "", fmt.Errorf("the Pod says %q, the answer %s on Pod %s", running, sandbox.GetPhase(), sandbox.GetPodUid())
	}
	return fmt.Sprintf("%s now runs %s in the same Pod, after %d ms", sandbox.GetPod(), swapImage, took.Milliseconds()), nil
}

// releaseAll releases everything. The swapped Pod is reset to its idle image; the others are replaced, because a reset would
// not restart any of their containers.
func (w *world) releaseAll(ctx context.Context) (string, error) {
	before, err := w.podUIDs(ctx)
	if err != nil {
		return "", err
	}
	held := w.caller.Holdings.Held()
	for _, sandbox := range held {
		if err := w.caller.Release(ctx, w.hub, sandbox); err != nil {
			return "", err
		}
	}
	if err := w.waitWarm(ctx); err != nil {
		return "", err
	}
	after, err := w.podUIDs(ctx)
	if err != nil {
		return "", err
	}
	kept := 0
	for uid := range after {
		if before[uid] {
			kept++
		}
	}
	replaced := len(after) - kept
	if replaced != len(held)-1 {
		return "", fmt.Errorf("of %d released sandboxes %d Pods were replaced, want all but the swapped one", len(held), replaced)
	}
	return fmt.Sprintf("%d released: 1 Pod reset in place, %d replaced, all warm again", len(held), replaced), nil
}

func (w *world) podUIDs(ctx context.Context) (map[string]bool, error) {
	uids := map[string]bool{}
	for _, id := range clusters {
		out, err := w.stack.Cluster(id).Kubectl(ctx, "-n", envNamespace, "get", "pods", "-l", "agentbox.navix.sh/sandbox-pool", "-o",
			"jsonpath={.items[*].metadata.uid}")
		if err != nil {
			return nil, fmt.Errorf("listing Pods in %s: %w", id, err)
		}
		for _, uid := range strings.Fields(out) {
			uids[uid] = true
		}
	}
	return uids, nil
}

// foreign reads the Env in every cluster with kubectl: each must show all three segments, its own marked as local.
func (w *world) foreign(ctx context.Context) (string, error) {
	const want = "east:6 north:4 west:8"
	for _, id := range clusters {
		err := w.waitFor(ctx, "foreign segments in "+id, time.Minute, func(ctx context.Context) error {
			out, err := w.stack.Cluster(id).Kubectl(ctx, "-n", envNamespace, "get", "sandboxenv", envName, "-o",
				`jsonpath={range .status.clusters[*]}{.clusterID}:{.observedMembers[0].idleCount}:{.isLocal} {end}`)
			if err != nil {
				return err
			}
			var idle, local []string
			for _, segment := range strings.Fields(out) {
				parts := strings.Split(segment, ":")
				idle = append(idle, parts[0]+":"+parts[1])
				if parts[2] == "true" {
					local = append(local, parts[0])
				}
			}
			slices.Sort(idle)
			return wait.If(strings.Join(idle, " ") == want && strings.Join(local, " ") == id, out)
		})
		if err != nil {
			return "", err
		}
	}
	w.foreignOK = true
	return "kubectl shows " + want + " in each of the three clusters", nil
}

// verify compares the hub and the three clusters, after the last fault is healed.
func (w *world) verify(ctx context.Context) (string, error) {
	if err := w.stack.Verify(ctx); err != nil {
		return "", err
	}
	return "hub, clusters and Pods agree: atollctl verify finds nothing wrong", nil
}
