// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// catalogued lays out the manifests of Envs in a folder, and removes the Envs from the catalogue at the end of the test.
func catalogued(t *testing.T, envs ...*env) (folder string) {
	t.Helper()
	folder = t.TempDir()
	t.Cleanup(func() {
		for _, e := range envs {
			for _, one := range [][]string{{"delete", "env", namespace + "/" + e.Name}, {"delete", "template", e.Name}} {
				if out, code := exits(context.Background(), t, one...); code != 0 && code != 3 {
					t.Errorf("%v: %s", one, out)
				}
			}
		}
		for _, e := range envs {
			must.Succeed(t, wait.Until(context.Background(), patience, e.Name+" to leave the catalogue", func(ctx context.Context) error {
				env, err := e.merged(ctx)
				if err != nil || env.GetCatalog() == nil {
					return nil
				}
				return fmt.Errorf("it has %v", env.GetCatalog())
			}))
		}
	})
	for _, e := range envs {
		e.write(t, folder)
	}
	return folder
}

func (e *env) write(t *testing.T, folder string) {
	t.Helper()
	text, err := e.Manifest()
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(folder, e.Name+".yaml"), []byte(text), 0o600))
}

// waitCatalogued waits until the hub tells of each cluster what is wanted: cluster:STATE@revision.
func (e *env) waitCatalogued(ctx context.Context, t *testing.T, want ...string) {
	t.Helper()
	wait.For(t, patience, e.Name+" in the catalogue: "+strings.Join(want, " "), func(ctx context.Context) error {
		env, err := e.merged(ctx)
		var got []string
		for _, c := range env.GetCatalog().GetClusters() {
			got = append(got, fmt.Sprintf("%s:%s@%d", c.GetClusterId(), c.GetState(), c.GetRevision()))
		}
		return errors.Join(err, wait.If(slices.Equal(got, want), fmt.Sprint(env.GetCatalog())))
	})
}

// I3, I5: each cluster gets its part of one apply, also one that was away; a user's field stays; a sandbox outlives its Env.
func TestI3_Catalogue(t *testing.T) {
	ctx := testContext(t)
	first, second := declareEnv(t, "cat-first", equally(1)), declareEnv(t, "cat-second", equally(1)[:2])
	folder := catalogued(t, first, second)
	if out, code := exits(ctx, t, "diff", "-f", folder); code != 1 || !strings.Contains(out, "cat-first in west: create") {
		t.Errorf("diff exits with %d:\n%s", code, out)
	}
	out := atollctl(ctx, t, "apply", "-f", folder)
	if strings.Count(out, "created (revision 1)") != 4 {
		t.Errorf("apply prints\n%s", out)
	}
	first.waitReady(ctx, t, first.replicas())
	second.waitReady(ctx, t, second.replicas())
	first.waitCatalogued(ctx, t, "east:APPLIED@1", "north:APPLIED@1", "west:APPLIED@1")
	is, err := first.get(ctx, "west")
	must.Succeed(t, err)
	if len(is.Spec.Clusters) != 1 || is.Spec.Clusters[0].ClusterID != "west" {
		t.Errorf("west has the segments %v", is.Spec.Clusters)
	}
	if out, code := exits(ctx, t, "diff", "-f", folder); code != 0 {
		t.Errorf("diff of what is applied exits with %d:\n%s", code, out)
	}

	before := is.DeepCopy()
	is.Spec.Overrides.Image = "registry.example/python:3"
	must.Succeed(t, kube["west"].Patch(ctx, is, client.MergeFrom(before), client.FieldOwner("kubectl-edit")))
	must.Succeed(t, atoll.Worker("north").Stop())
	text, err := os.ReadFile(filepath.Join(folder, "cat-first.yaml"))
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "cat-first.yaml"), []byte(strings.Replace(string(text), "overrides: {",
		"overrides: {image: registry.example/python:2, ", 1)), 0o600))
	if out, code := exits(ctx, t, "diff", "-f", folder); code != 2 || !strings.Contains(out, "cat-first in north: unknown") ||
		!strings.Contains(out, `overrides.image: conflict with "kubectl-edit"`) {
		t.Errorf("diff exits with %d:\n%s", code, out)
	}
	atollctl(ctx, t, "apply", "-f", folder)
	first.waitCatalogued(ctx, t, "east:APPLIED@2", "north:PENDING@1", "west:CONFLICT@1")
	if is, err = first.get(ctx, "west"); err != nil || is.Spec.Overrides.Image != "registry.example/python:3" {
		t.Errorf("the user's image is %v, %v", is.Spec.Overrides, err)
	}
	must.Succeed(t, atoll.Worker("north").Start(ctx))
	first.waitCatalogued(ctx, t, "east:APPLIED@2", "north:APPLIED@2", "west:CONFLICT@1")

	sandbox := second.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"east"}, RequireClusters: true})
	atollctl(ctx, t, "delete", "env", namespace+"/cat-second")
	second.waitPods(ctx, t, "north", 0)
	second.waitPods(ctx, t, "east", 1)
	got, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()})
	if err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Errorf("the sandbox of a removed Env is %v, %v", got, err)
	}
	second.mustRelease(ctx, t, hub, sandbox)
	second.waitPods(ctx, t, "east", 0)

	// What a user owns fields of is not removed: the user gives them up.
	is, err = first.get(ctx, "west")
	must.Succeed(t, err)
	before = is.DeepCopy()
	is.ManagedFields = slices.DeleteFunc(is.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "kubectl-edit" })
	must.Succeed(t, kube["west"].Patch(ctx, is, client.MergeFrom(before), client.FieldOwner("kubectl-edit")))
}
