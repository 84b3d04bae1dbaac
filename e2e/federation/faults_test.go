// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// I5: a worker hangs, dies, and the hub restarts without hearing it: no segment, no pool and no Pod is deleted because of that.
func TestI5_NothingIsDeletedByASilentCluster(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "silent", equally(2)...)
	e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"west"}})
	const west = "idle=1 running=1 desired=2"
	for _, in := range clusters {
		e.waitSegment(ctx, t, in, "west", west)
	}
	pods := e.podUIDs(ctx, t, "west")

	must.Succeed(t, atoll.Worker("west").Pause())
	must.Succeed(t, atoll.Hub.Kill())
	must.Succeed(t, atoll.Worker("west").Kill())
	must.Succeed(t, atoll.Hub.Start(ctx))
	for _, cluster := range []string{"east", "north"} {
		must.Succeed(t, waitState(ctx, cluster, sandboxv1.ClusterState_FRESH))
	}
	// The worker of north restarts as well, so it has only its Env's view of west.
	must.Succeed(t, atoll.Worker("north").Stop())
	must.Succeed(t, atoll.Worker("north").Start(ctx))
	// A change that the new hub passes on shows that its earlier messages have arrived.
	for _, of := range []string{"east", "north"} {
		e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{of}, RequireClusters: true})
		for _, in := range []string{"east", "north"} {
			e.waitSegment(ctx, t, in, of, west)
		}
	}
	for _, in := range []string{"east", "north"} {
		if got, err := e.segment(ctx, in, "west"); err != nil || got != west {
			t.Errorf("with the worker of west gone, %s shows %q of it (%v), want %q", in, got, err, west)
		}
	}
	if now := e.podUIDs(ctx, t, "west"); !slices.Equal(now, pods) {
		t.Errorf("with its worker gone, west has\n%v\nbefore it had\n%v", now, pods)
	}

	must.Succeed(t, heal(ctx))
	e.waitReady(ctx, t, map[string]int{"east": 1, "north": 1, "west": 1})
	e.wantAllSegments(ctx, t)
	mustVerify(ctx, t)
	if now := e.podUIDs(ctx, t, "west"); !slices.Equal(now, pods) {
		t.Errorf("with its worker back, west has\n%v\nbefore it had\n%v", now, pods)
	}
}

// I6: a running sandbox survives the hub's death, its worker's death, and a scale-down to zero.
func TestI6_RunningSandboxesSurvive(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "survivor", equally(2)...)
	sandbox := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"east"}})
	survived := func(what string) {
		t.Helper()
		wait.For(t, patience, "the hub to show the sandbox after "+what, func(ctx context.Context) error {
			got, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.GetId()})
			if err != nil {
				return err
			}
			if got.GetPhase() == sandboxv1.Phase_ENDED {
				t.Fatalf("after %s the sandbox has ended: %v", what, got)
			}
			return wait.If(got.GetPhase() == sandboxv1.Phase_RUNNING && got.GetPodUid() == sandbox.GetPodUid(), got)
		})
	}
	must.Succeed(t, restart(ctx, atoll.Hub))
	survived("the hub was killed")

	worker := atoll.Worker("east")
	must.Succeed(t, worker.Stop())
	must.Succeed(t, worker.Start(ctx))
	survived("the worker was restarted")

	e.Members[0].Replicas = 0
	e.apply(ctx, t, "east")
	wait.For(t, patience, "the sandbox's Pod to be the only one left in east", func(ctx context.Context) error {
		pods, err := e.pods(ctx, "east")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(e.podUIDs(ctx, t, "east"), func(uid string) bool { return uid == "pod "+sandbox.GetPodUid() }) {
			t.Fatalf("the scale-down took the Pod of a running sandbox; left are %s", summary(pods))
		}
		return wait.If(len(pods) == 1, summary(pods))
	})
	survived("its pool was scaled down to 0")
	e.mustRelease(ctx, t, hub, sandbox)
	wait.For(t, patience, "the released sandbox's Pod to go", func(ctx context.Context) error {
		pods, err := e.pods(ctx, "east")
		return wait.If(err == nil && len(pods) == 0, fmt.Sprint(err, summary(pods)))
	})
	mustVerify(ctx, t)
}

// I7: a cluster whose worker or API server hangs, with its connections open, does not affect the others.
func TestI7_OneFrozenClusterDelaysNoOther(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "frozen", equally(6)...)

	must.Succeed(t, atoll.Worker("west").Pause())
	e.wantServedWithout(ctx, t, "west", "its worker is frozen", unharmed)
	must.Succeed(t, waitState(ctx, "west", sandboxv1.ClusterState_SUSPECT, sandboxv1.ClusterState_UNREACHABLE))
	must.Succeed(t, heal(ctx))

	north := atoll.Cluster("north")
	must.Succeed(t, north.Pause())
	resume := sync.OnceFunc(func() { must.Succeed(t, north.Resume()) })
	defer resume()
	// The worker acknowledges the claim, and then retries the write for a while.
	e.wantServedWithout(ctx, t, "north", "its API server is frozen", patience)
	resume()
	wait.For(t, patience, "a sandbox in north", func(ctx context.Context) error {
		// Its worker may have lost its lease meanwhile, and exited; it is restarted.
		if err := heal(ctx); err != nil {
			return err
		}
		_, err := e.claim(ctx, hub, &sandboxv1.CreateSandboxRequest{
			Clusters: []string{"north"}, RequireClusters: true, StartupTimeout: durationpb.New(tryFor),
		})
		return err
	})
	mustVerify(ctx, t)
}

// unharmed is far above the second after which the hub moves a claim, and below the 15 s after which it gives a cluster up.
const unharmed = 10 * time.Second

// wantServedWithout makes claims at once: those that prefer a frozen cluster are served elsewhere in time, others where they prefer.
func (e *env) wantServedWithout(ctx context.Context, t *testing.T, frozen, why string, within time.Duration) {
	t.Helper()
	var mu sync.Mutex
	took := map[string][]time.Duration{}
	elsewhere := slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return c == frozen })
	var group errgroup.Group
	for i := range 4 {
		preferred := []string{frozen}
		if i%2 == 1 {
			preferred = []string{elsewhere[i/2]}
		}
		group.Go(func() error {
			begin := time.Now()
			sandbox, err := e.claim(ctx, hub, &sandboxv1.CreateSandboxRequest{Clusters: preferred, StartupTimeout: durationpb.New(patience)})
			lasted := time.Since(begin).Round(time.Millisecond)
			mu.Lock()
			took[preferred[0]] = append(took[preferred[0]], lasted)
			mu.Unlock()
			bound := unharmed
			if preferred[0] == frozen {
				bound = within
			}
			switch {
			case err != nil:
				return fmt.Errorf("a claim that prefers %v, after %s: %w", preferred, lasted, err)
			case lasted > bound:
				return fmt.Errorf("a claim that prefers %v took %s, more than %s", preferred, lasted, bound)
			case sandbox.GetClusterId() == frozen:
				return fmt.Errorf("%s was answered by the frozen cluster", sandbox.GetId())
			case preferred[0] != frozen && sandbox.GetClusterId() != preferred[0]:
				return fmt.Errorf("a claim that prefers %v went to %s: %v", preferred, sandbox.GetClusterId(), sandbox.GetDecision())
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Errorf("with %s cut off because %s: %v", frozen, why, err)
	}
	t.Logf("with %s cut off because %s, claims took, by the cluster they prefer: %v", frozen, why, took)
}

// I8: without the hub every cluster serves local claims, with its own keys, and keeps its segment true.
func TestI8_LocalClaimsWithoutHub(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "alone", equally(2)...)
	must.Succeed(t, atoll.Hub.Kill())
	key := unused("local")
	kept := map[string]*sandboxv1.Sandbox{}
	for _, cluster := range clusters {
		kept[cluster] = e.mustClaim(ctx, t, local[cluster], &sandboxv1.CreateSandboxRequest{Clusters: []string{cluster}})
		e.waitSegment(ctx, t, cluster, cluster, "idle=1 running=1 desired=2")
		e.wantLocalKey(ctx, t, cluster, key)
	}
	for cluster, sandbox := range kept {
		if sandbox.GetClusterId() != cluster {
			t.Errorf("the worker of %s answered %s, of %s", cluster, sandbox.GetId(), sandbox.GetClusterId())
		}
	}

	must.Succeed(t, heal(ctx))
	e.waitReady(ctx, t, map[string]int{"east": 1, "north": 1, "west": 1})
	listed, err := hub.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Env: e.Name, Phase: sandboxv1.Phase_RUNNING})
	must.Succeed(t, err)
	got := map[string]string{}
	for _, sandbox := range listed.GetSandboxes() {
		got[sandbox.GetPodUid()] = sandbox.GetId()
	}
	if want := e.caller.Holdings.Live(); !maps.Equal(got, want) {
		t.Errorf("the hub is back and lists %v, want what was claimed without it: %v", got, want)
	}
	e.wantAllSegments(ctx, t)
	mustVerify(ctx, t)
}

// wantLocalKey claims, claims again and releases by a key at a worker's own address. Each worker has its own sandbox for the key.
func (e *env) wantLocalKey(ctx context.Context, t *testing.T, cluster, key string) {
	t.Helper()
	door := local[cluster]
	create := func() *sandboxv1.Sandbox {
		t.Helper()
		sandbox, err := door.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Namespace: namespace, Env: e.Name, ClaimKey: key})
		if err != nil {
			t.Fatalf("claiming by key at the worker of %s: %v", cluster, err)
		}
		return sandbox
	}
	first, second := create(), create()
	if first.GetId() != second.GetId() || first.GetPodUid() != second.GetPodUid() || first.GetClusterId() != cluster {
		t.Errorf("at the worker of %s one key is answered %s and %s", cluster, first.GetId(), second.GetId())
	}
	e.waitSegment(ctx, t, cluster, cluster, "idle=0 running=2 desired=2")
	if err := door.Release(ctx, first.GetId()); err != nil {
		t.Fatalf("releasing at the worker of %s: %v", cluster, err)
	}
	wait.For(t, patience, "the terminal record at the worker of "+cluster, func(context.Context) error {
		third := create()
		return wait.If(third.GetId() == first.GetId() && third.GetPhase() == sandboxv1.Phase_ENDED, third)
	})
	e.waitSegment(ctx, t, cluster, cluster, "idle=1 running=1 desired=2")
}
