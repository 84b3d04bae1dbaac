// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// refresh changes the template everywhere, which changes no pool, and has them made anew by one call: idle Pods follow, and a
// sandbox that runs keeps its Pod to its end.
func (w *world) refresh(ctx context.Context) (string, error) {
	sandbox, err := w.claim(ctx, w.hub, &sandboxv1.CreateSandboxRequest{})
	if err != nil {
		return "", err
	}
	newer := strings.NewReplacer("image: "+idleImage, "image: "+swapImage, "version: v1.0.0", "version: v1.1.0")
	for _, id := range clusters {
		if out, err := w.stack.Cluster(id).KubectlInput(ctx, strings.NewReader(newer.Replace(string(templateManifest))), "apply", "-f", "-"); err != nil {
			return "", fmt.Errorf("applying the newer template in %s: %w\n%s", id, err, out)
		}
	}
	change := fmt.Sprintf("%q -> %q", idleImage, swapImage)
	if err := w.waitFor(ctx, "a dry run to tell of the newer template", time.Minute, func(ctx context.Context) (bool, string) {
		out, err := w.atollctl(ctx, "envs", "refresh", envName, "--dry-run")
		return err == nil && strings.Count(out, change) == len(clusters), out
	}); err != nil {
		return "", err
	}
	images, err := w.images(ctx)
	if err != nil {
		return "", err
	}
	if images[swapImage] > 0 {
		return "", fmt.Errorf("%d Pods have followed the template before anybody asked for it", images[swapImage])
	}
	begin := time.Now()
	if out, err := w.atollctl(ctx, "envs", "refresh", envName, "--max-unavailable", "50%"); err != nil {
		return "", fmt.Errorf("refreshing: %w\n%s", err, out)
	}
	if err := w.waitFor(ctx, "idle Pods to be replaced", 2*time.Minute, func(ctx context.Context) (bool, string) {
		images, err = w.images(ctx)
		return err == nil && images[idleImage] == 1, fmt.Sprint(images, err)
	}); err != nil {
		return "", err
	}
	took, replaced := time.Since(begin), images[swapImage]
	now, err := w.hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()})
	if err != nil {
		return "", fmt.Errorf("looking at the sandbox that ran meanwhile: %w", err)
	}
	if now.GetPhase() != sandboxv1.Phase_RUNNING || now.GetPodUid() != sandbox.GetPodUid() {
		return "", fmt.Errorf("the sandbox that ran meanwhile was on Pod %s, and is %s on %s", sandbox.GetPodUid(), now.GetPhase(), now.GetPodUid())
	}
	if err := w.release(ctx, w.hub, sandbox.GetId()); err != nil {
		return "", err
	}
	if err := w.waitFor(ctx, "the last Pod to be replaced", time.Minute, func(ctx context.Context) (bool, string) {
		images, err = w.images(ctx)
		return err == nil && images[idleImage] == 0, fmt.Sprint(images, err)
	}); err != nil {
		return "", err
	}
	if err := w.waitWarm(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("template v1.1.0 changed nothing until atollctl envs refresh: %d idle Pods replaced in %.1f s, the running one after its release",
		replaced, took.Seconds()), nil
}

// images counts the Env's Pods by the image in their spec, but for those on their way out.
func (w *world) images(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	for _, id := range clusters {
		out, err := w.stack.Cluster(id).Kubectl(ctx, "-n", envNamespace, "get", "pods", "-l", "agentbox.navix.sh/sandbox-pool="+envName+"-"+id, "-o",
			`jsonpath={range .items[*]}{.spec.containers[0].image} {.metadata.deletionTimestamp}{"\n"}{end}`)
		if err != nil {
			return nil, fmt.Errorf("listing Pods in %s: %w", id, err)
		}
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) == 1 {
				counts[fields[0]]++
			}
		}
	}
	return counts, nil
}

// atollctl runs it against the hub.
func (w *world) atollctl(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(w.binDir, "atollctl"), append(args, w.stack.HubEndpoint().Flags()...)...).CombinedOutput()
	return string(out), err
}
