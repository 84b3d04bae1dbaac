// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// wantAllSegments checks that every cluster has all three segments, and only its own as local.
func (e *env) wantAllSegments(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, cluster := range clusters {
		wait.For(t, patience, cluster+" to show all segments, its own as local", func(ctx context.Context) error {
			got, err := e.get(ctx, cluster)
			if err != nil {
				return err
			}
			var shown []string
			for _, s := range got.Status.Clusters {
				shown = append(shown, fmt.Sprintf("%s:%t", s.ClusterID, s.IsLocal))
			}
			slices.Sort(shown)
			want := make([]string, 0, len(clusters))
			for _, id := range clusters {
				want = append(want, fmt.Sprintf("%s:%t", id, id == cluster))
			}
			return wait.If(slices.Equal(shown, want), strings.Join(shown, " "))
		})
	}
}

// I3, I4: foreign segments equal their owners', even after a fault; a re-apply loses nothing; what is removed does not come back.
func TestI3_I4_ForeignSegments(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "segments", equally(2)...)
	e.wantAllSegments(ctx, t)
	mustVerify(ctx, t)

	// Changes while a worker hangs appear in its view, and in others' views of it, afterwards.
	must.Succeed(t, atoll.Worker("west").Pause())
	e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"east"}})
	must.Succeed(t, heal(ctx))
	e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"west"}, RequireClusters: true})
	for _, of := range []string{"east", "west"} {
		for _, in := range clusters {
			e.waitSegment(ctx, t, in, of, "idle=1 running=1 desired=2")
		}
	}
	mustVerify(ctx, t)

	e.wantReapplyLosesNothing(ctx, t, "east")
	e.wantRemovalForGood(ctx, t, "north")
	e.delete(ctx, t, "west")
	e.waitSegment(ctx, t, "east", "west", "none")
}

func (e *env) delete(ctx context.Context, t *testing.T, cluster string) {
	t.Helper()
	object := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: e.Name}}
	if err := kube[cluster].Delete(ctx, object); err != nil {
		t.Fatalf("deleting the Env in %s: %v", cluster, err)
	}
}

// wantReapplyLosesNothing applies the unchanged manifest, client-side, which would replace all of spec.clusters if that differed.
func (e *env) wantReapplyLosesNothing(ctx context.Context, t *testing.T, cluster string) {
	t.Helper()
	before := e.whatMatters(ctx, t, cluster)
	generation := e.generation(ctx, t, cluster)
	e.apply(ctx, t, cluster)
	if after := e.generation(ctx, t, cluster); after != generation {
		t.Errorf("applying the unchanged manifest again in %s took the Env from generation %d to %d", cluster, generation, after)
	}
	wait.For(t, patience, "everything to be as before the re-apply in "+cluster, func(ctx context.Context) error {
		after := e.whatMatters(ctx, t, cluster)
		return wait.If(after == before, fmt.Sprintf("now\n%s\nbefore\n%s", after, before))
	})
	mustVerify(ctx, t)
	if after := e.whatMatters(ctx, t, cluster); after != before {
		t.Errorf("a while after the re-apply %s has\n%s\nbefore it had\n%s", cluster, after, before)
	}
}

func (e *env) generation(ctx context.Context, t *testing.T, cluster string) int64 {
	t.Helper()
	got, err := e.get(ctx, cluster)
	must.Succeed(t, err)
	return got.Generation
}

// whatMatters is the Env's spec with all snapshots, every segment's counts, and the identity of pool and Pods.
func (e *env) whatMatters(ctx context.Context, t *testing.T, cluster string) string {
	t.Helper()
	got, err := e.get(ctx, cluster)
	must.Succeed(t, err)
	spec, err := json.Marshal([]any{got.Spec, got.Status.Snapshots})
	must.Succeed(t, err)
	out := []string{"spec " + string(spec)}
	for _, of := range clusters {
		segment, err := e.segment(ctx, cluster, of)
		must.Succeed(t, err)
		out = append(out, of+" "+segment)
	}
	var pool v1alpha1.SandboxPool
	must.Succeed(t, kube[cluster].Get(ctx, client.ObjectKey{Namespace: namespace, Name: e.Pool(cluster)}, &pool))
	out = append(out, fmt.Sprintf("pool %s replicas %d", pool.UID, pool.Spec.Replicas))
	out = append(out, e.podUIDs(ctx, t, cluster)...)
	return strings.Join(out, "\n")
}

// podUIDs lists the Pods, sorted.
func (e *env) podUIDs(ctx context.Context, t *testing.T, cluster string) []string {
	t.Helper()
	pods, err := e.pods(ctx, cluster)
	must.Succeed(t, err)
	uids := make([]string, 0, len(pods))
	for i := range pods {
		uids = append(uids, "pod "+string(pods[i].UID))
	}
	slices.Sort(uids)
	return uids
}

// wantRemovalForGood deletes the Env in one cluster: the others remove it permanently, even after a restart of the hub.
func (e *env) wantRemovalForGood(ctx context.Context, t *testing.T, cluster string) {
	t.Helper()
	e.delete(ctx, t, cluster)
	shown := func(merged *sandboxv1.Env) bool {
		return slices.ContainsFunc(merged.GetClusters(), func(c *sandboxv1.EnvCluster) bool { return c.GetClusterId() == cluster })
	}
	gone := func() {
		t.Helper()
		for _, in := range clusters {
			if in != cluster {
				e.waitSegment(ctx, t, in, cluster, "none")
			}
		}
		if merged, err := e.merged(ctx); err != nil || shown(merged) {
			t.Errorf("the hub shows the Env in %s, where it was deleted: %v, %v", cluster, merged, err)
		}
	}
	wait.For(t, patience, "the hub to drop "+cluster, func(ctx context.Context) error {
		merged, err := e.merged(ctx)
		return errors.Join(err, wait.If(!shown(merged), merged))
	})
	gone()
	must.Succeed(t, restart(ctx, atoll.Hub))
	must.Succeed(t, heal(ctx))
	// A change that the new hub passes on shows that its earlier messages have arrived.
	e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"west"}, RequireClusters: true})
	e.waitSegment(ctx, t, "east", "west", "idle=0 running=2 desired=2")
	gone()
	mustVerify(ctx, t)
}
