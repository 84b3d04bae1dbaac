// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// I6: pools are refreshed through the hub, at a worker and by atollctl; idle Pods follow, and a sandbox keeps its Pod to its end.
func TestI6_Refresh(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "refresh", equally(2)...)
	sandbox := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"west"}, RequireClusters: true})
	e.Image = swapImage
	e.apply(ctx, t, clusters...)
	e.waitPods(ctx, t, "west", 2)
	for _, cluster := range clusters {
		wait.For(t, patience, "the template to be newer in "+cluster, func(ctx context.Context) error {
			got, err := hub.RefreshEnv(ctx, &sandboxv1.RefreshEnvRequest{Namespace: namespace, Name: e.Name, Clusters: []string{cluster},
				DryRun: true})
			if err != nil || len(got.GetMembers()) != 1 {
				return fmt.Errorf("%v, %w", got, err)
			}
			m := got.GetMembers()[0]
			return wait.If(m.GetOutcome() == sandboxv1.RefreshedMember_WOULD_REFRESH && slices.Contains(m.GetChanges(),
				fmt.Sprintf("spec.template.spec.containers[0].image: %q -> %q", poolImage, swapImage)), m)
		})
	}
	if images := e.images(ctx, t, "west"); slices.Contains(images, swapImage) {
		t.Fatalf("a dry run has made Pods with %s", images)
	}

	call(ctx, t, http.StatusOK, http.MethodPost, "/v1/envs/"+namespace+"/"+e.Name+":refresh",
		`{"clusters": ["west"], "maxUnavailable": "100%"}`)
	call(ctx, t, http.StatusNotFound, http.MethodPost, "/v1/envs/"+namespace+"/"+e.Name+":refresh", `{"members": ["other"]}`)
	call(ctx, t, http.StatusBadRequest, http.MethodPost, "/v1/envs/"+namespace+"/"+e.Name+":refresh", `{"maxUnavailable": "lots"}`)
	if _, err := local["north"].RefreshEnv(ctx, &sandboxv1.RefreshEnvRequest{Namespace: namespace, Name: e.Name,
		Clusters: []string{"west"}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a worker was asked for another cluster's members: %v", err)
	}
	here, err := local["north"].RefreshEnv(ctx, &sandboxv1.RefreshEnvRequest{Namespace: namespace, Name: e.Name,
		Members: []string{e.Pool("north")}})
	if err != nil || len(here.GetMembers()) != 1 || here.GetMembers()[0].GetOutcome() != sandboxv1.RefreshedMember_REFRESHED {
		t.Errorf("at the worker: %v, %v", here, err)
	}
	if text := atollctl(ctx, t, "envs", "refresh", namespace+"/"+e.Name); strings.Count(text, "REFRESHED") != 2 ||
		strings.Count(text, "UNCHANGED") != 1 {
		t.Errorf("atollctl prints\n%s", text)
	}

	for cluster, want := range map[string][]string{"east": {swapImage, swapImage}, "north": {swapImage, swapImage},
		"west": {poolImage, swapImage}} {
		wait.For(t, patience, "new Pods in "+cluster, func(ctx context.Context) error {
			images := e.images(ctx, t, cluster)
			return wait.If(slices.Equal(images, want), images)
		})
	}
	got, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()})
	if err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING || got.GetPod() != sandbox.GetPod() {
		t.Errorf("the sandbox was %v and is %v, %v", sandbox, got, err)
	}
	e.mustRelease(ctx, t, hub, sandbox)
	wait.For(t, patience, "the sandbox's Pod to be replaced", func(ctx context.Context) error {
		images := e.images(ctx, t, "west")
		return wait.If(slices.Equal(images, []string{swapImage, swapImage}), images)
	})
	e.waitReady(ctx, t, e.replicas())
	mustVerify(ctx, t)
}

// images are those of the Env's Pods in a cluster that are not being deleted, sorted.
func (e *env) images(ctx context.Context, t *testing.T, cluster string) []string {
	t.Helper()
	pods, err := e.pods(ctx, cluster)
	must.Succeed(t, err)
	var images []string
	for i := range pods {
		if pods[i].DeletionTimestamp == nil {
			images = append(images, pods[i].Spec.Containers[0].Image)
		}
	}
	slices.Sort(images)
	return images
}
