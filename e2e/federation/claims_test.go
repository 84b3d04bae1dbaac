// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

func TestClaimsFollowRoom(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "room", member{Cluster: "east", Replicas: 2}, member{Cluster: "north", Replicas: 2},
		member{Cluster: "west", Replicas: 3, Priority: 10})

	// A preference is followed while there is room, whatever the priority.
	preferred := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Clusters: []string{"west"}})
	if preferred.GetClusterId() != "west" {
		t.Errorf("a claim that prefers west, where 3 Pods are idle, went to %s: %v", preferred.GetClusterId(), preferred.GetDecision())
	}
	got := map[string]int{}
	for range 4 {
		got[e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{}).GetClusterId()]++
	}
	if want := map[string]int{"east": 2, "north": 2}; !maps.Equal(got, want) {
		t.Errorf("4 claims went to %v, want %v: priority 0 before 10", got, want)
	}
	overflow := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{})
	if overflow.GetClusterId() != "west" {
		t.Errorf("a claim beyond the room of east and north went to %s: %v", overflow.GetClusterId(), overflow.GetDecision())
	}
	for name, request := range map[string]*sandboxv1.ExplainEnvRequest{
		"the past claim": {SandboxId: overflow.GetId()},
		"a next claim":   {},
	} {
		wantWestForRoom(t, name, explain(t, e, request))
	}

	_, err := e.claim(ctx, hub, &sandboxv1.CreateSandboxRequest{NoQueue: true, Clusters: []string{"east"}, RequireClusters: true})
	if refusal := wantReason(t, err, problem.NoCapacity); refusal.RetryAfter <= 0 {
		t.Errorf("NO_CAPACITY comes without RetryAfter: %v", err)
	}
	bound := explain(t, e, &sandboxv1.ExplainEnvRequest{Request: &sandboxv1.CreateSandboxRequest{
		NoQueue: true, Clusters: []string{"east"}, RequireClusters: true,
	}})
	reasons := map[string]string{}
	for _, c := range bound.GetCandidates() {
		reasons[c.GetClusterId()] = c.GetReason()
	}
	want := map[string]string{"east": "NoIdlePod", "north": "ClusterNotRequested", "west": "ClusterNotRequested"}
	if bound.GetClusterId() != "" || !maps.Equal(reasons, want) {
		t.Errorf("explain chose %q for reasons %v, want no cluster and %v", bound.GetClusterId(), reasons, want)
	}

	// A claim that may queue waits for the next idle Pod of its cluster, as long as its caller does.
	queued := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			sandbox, err := e.claim(ctx, hub, &sandboxv1.CreateSandboxRequest{
				Clusters: []string{"north"}, RequireClusters: true, StartupTimeout: durationpb.New(patience),
			})
			if err == nil && sandbox.GetClusterId() != "north" {
				err = fmt.Errorf("a claim bound to north went to %s", sandbox.GetClusterId())
			}
			done <- err
		}()
		return done
	}
	impatient, leave := context.WithCancel(ctx)
	left := queued(impatient)
	e.wantPending(ctx, t, 1)
	leave()
	if err := <-left; status.Code(err) != codes.Canceled {
		t.Errorf("a caller that has left is answered %v", err)
	}
	e.wantPending(ctx, t, 0)
	waited := queued(ctx)
	e.wantPending(ctx, t, 1)
	releaseOneOf(ctx, t, e, "north")
	if err := <-waited; err != nil {
		t.Errorf("the waiting claim: %v", err)
	}
	mustVerify(ctx, t)
}

// wantPending waits until that many claims are reported as waiting.
func (e *env) wantPending(ctx context.Context, t *testing.T, want int32) {
	t.Helper()
	wait.For(t, patience, fmt.Sprintf("%d claims to wait", want), func(ctx context.Context) error {
		merged, err := e.merged(ctx)
		return errors.Join(err, wait.If(merged.GetPending() == want, merged))
	})
}

// wantWestForRoom checks that the decision is west because the others have no idle Pod.
func wantWestForRoom(t *testing.T, what string, d *sandboxv1.Decision) {
	t.Helper()
	if d.GetClusterId() != "west" || d.GetReason() != "BetterTier" {
		t.Errorf("%s: decided for %q because of %q, want west because of BetterTier: %v", what, d.GetClusterId(), d.GetReason(), d)
	}
	for _, c := range d.GetCandidates() {
		if c.GetClusterId() != "west" && (c.GetReason() != "WorseTier" || c.GetReadyIdle()-c.GetInFlight() > 0) {
			t.Errorf("%s: %s has %d ready and reason %q, want none and WorseTier", what, c.GetClusterId(), c.GetReadyIdle(), c.GetReason())
		}
	}
}

func explain(t *testing.T, e *env, r *sandboxv1.ExplainEnvRequest) *sandboxv1.Decision {
	t.Helper()
	r.Namespace, r.Name = namespace, e.Name
	d, err := hub.ExplainEnv(t.Context(), r)
	if err != nil {
		t.Fatalf("explaining: %v", err)
	}
	return d
}

// releaseOneOf releases any live sandbox of a cluster.
func releaseOneOf(ctx context.Context, t *testing.T, e *env, cluster string) {
	t.Helper()
	listed, err := hub.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Env: e.Name, ClusterId: cluster})
	if err != nil || len(listed.GetSandboxes()) == 0 {
		t.Fatalf("listing sandboxes of %s: %v, %v", cluster, listed, err)
	}
	e.mustRelease(ctx, t, hub, listed.GetSandboxes()[0])
}

// I1: a Pod is never returned to two claims, though callers want more Pods than there are; some are reset, some replaced.
func TestI1_NoPodTwiceUnderConcurrentClaims(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "contended", equally(3)...)
	const rounds = 5
	var mu sync.Mutex
	seen := map[string]bool{} // sandbox ids
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(caller), 1))
			doors := []*stack.Client{hub, hub, local[clusters[caller%len(clusters)]]}
			for range rounds {
				request := &sandboxv1.CreateSandboxRequest{}
				if rnd.IntN(2) == 0 {
					request.Image = swapImage
				}
				sandbox, err := e.claim(ctx, doors[rnd.IntN(len(doors))], request)
				if err != nil {
					t.Errorf("caller %d: %v", caller, err)
					continue
				}
				mu.Lock()
				if seen[sandbox.GetId()] {
					t.Errorf("I1: sandbox %s was answered to two claims", sandbox.GetId())
				}
				seen[sandbox.GetId()] = true
				mu.Unlock()
				if err := e.caller.Release(ctx, doors[rnd.IntN(2)], sandbox); err != nil {
					t.Errorf("caller %d: %v", caller, err)
				}
			}
		})
	}
	group.Wait()
	if len(seen) != callers*rounds {
		t.Errorf("%d sandboxes were answered to %d claims", len(seen), callers*rounds)
	}
	e.waitReady(ctx, t, e.replicas())
	mustVerify(ctx, t)
}

// I14: hub and worker refuse an image that the Env does not allow, with a key and without, say what is allowed, and use no Pod.
func TestI14_AnImageThatIsNotAllowed(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "images", equally(1)...)
	const other = "registry.example/other:1"
	refused := func(c *stack.Client, key string) {
		t.Helper()
		_, err := e.claim(ctx, c, &sandboxv1.CreateSandboxRequest{Image: other, ClaimKey: key})
		if p := wantReason(t, err, problem.Forbidden); !strings.Contains(p.Message, other) ||
			!strings.Contains(p.Message, "registry.example/python") {
			t.Errorf("refused with %s", p.Message)
		}
	}
	for _, c := range []*stack.Client{hub, local["east"]} {
		refused(c, "")
		refused(c, unused("image"))
	}
	for _, cluster := range clusters {
		if out, err := atoll.Cluster(cluster).Kubectl(ctx, "annotate", "--overwrite", "sandboxenv", e.Name, "-n", namespace,
			"agentbox.navix.sh/allowed-images=registry.example/nothing\n"+swapImage); err != nil {
			t.Fatalf("annotating in %s: %v\n%s", cluster, err, out)
		}
	}
	e.mustRelease(ctx, t, hub, e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{Image: swapImage}))
	e.waitReady(ctx, t, e.replicas())
	mustVerify(ctx, t)
}
