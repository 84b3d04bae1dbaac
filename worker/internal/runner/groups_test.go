// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// scalingGroups runs autoscaler, pools and claims of a whole worker together.
func scalingGroups(t *testing.T, s *site) {
	t.Run("a quota that is used up", func(t *testing.T) {
		t.Parallel()
		testQuotaUsedUp(s.place(t))
	})
	t.Run("members moved under claims", func(t *testing.T) {
		t.Parallel()
		testMembersMoved(s.place(t))
	})
}

// groupsManifest is an Env of two groups, one member each.
const groupsManifest = `
apiVersion: agents.navix.sh/v1alpha1
kind: SandboxEnv
metadata: {name: env, namespace: NS}
spec:
  mode: WarmPool
  templateRef: {name: TEMPLATE}
  autoscaling:
    groups:
    - &group
      name: one
      enabled: true
      maxReplicas: 3
      scaleUpPolicy: {mode: Aggressive, cooldownSeconds: 0, idleThresholdSeconds: 0, saturationCooldownSeconds: 2}
      scaleDownPolicy: {idleTimeoutSeconds: 2, stabilizationSeconds: 1, protectionWindowSeconds: 1}
    - {<<: *group, name: two}
  clusters:
  - clusterID: east
    members:
    - {name: a, config: {scalingGroup: one, minReplicas: 1}}
    - {name: b, config: {scalingGroup: two, minReplicas: 1}}
`

// waiting is a claim that queues where it must.
func (p *place) waiting(ctx context.Context, group string) (*sandboxv1.Sandbox, error) {
	return p.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		Namespace: p.Namespace, Env: "env", Team: "team", ScalingGroup: group, StartupTimeout: durationpb.New(50 * time.Second),
	})
}

// testQuotaUsedUp: a claim waits for a Pod that the namespace's quota refuses, the reason is reported everywhere, and the claim
// is served once there is room.
func testQuotaUsedUp(p *place) {
	quota := p.limitPods(3)
	p.apply(templateManifest + "---" + groupsManifest)
	p.awaitIdle("a", 1)
	p.awaitIdle("b", 1)
	var running []*sandboxv1.Sandbox
	for range 2 { // the second needs a Pod that there is room for
		got, err := p.waiting(p.ctx, "one")
		p.Must(err)
		running = append(running, got)
	}
	third := make(chan error, 1)
	go func() {
		got, err := p.waiting(p.ctx, "one")
		running = append(running, got)
		third <- err
	}()
	planetest.Eventually(p.t, "the refusal in the pool's status", func() error {
		s := p.Pool("a").Status.AutoScaling
		return wait.If(s != nil && s.LastScaleUpAttemptResult == v1alpha1.PoolScaleUpAttemptInsufficient &&
			strings.Contains(s.ScaleUpErrorMessage, "exceeded quota: quota"), s)
	})
	planetest.Eventually(p.t, "a saturated member", func() error {
		for _, m := range p.Env("env").Status.Clusters[0].ObservedMembers {
			if m.Name == "a" && m.State != v1alpha1.ObservedMemberStateSaturated {
				return fmt.Errorf("it is %s", m.State)
			}
		}
		return nil
	})
	_, err := p.sandboxes.CreateSandbox(p.ctx, &sandboxv1.CreateSandboxRequest{Namespace: p.Namespace, Env: "env", Team: "team",
		ScalingGroup: "one", NoQueue: true})
	if err == nil || problem.FromError(err).Reason != problem.NoCapacity {
		p.t.Errorf("a claim that does not wait is answered %v", err)
	}
	select {
	case err := <-third:
		p.t.Fatalf("the third was answered %v without room", err)
	default:
	}
	p.Must(p.live.Patch(p.ctx, quota, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hard":{"pods":"9"}}}`))))
	p.Must(<-third)
	for _, s := range running {
		p.release(s.GetId())
	}
	p.awaitIdle("a", 1)
	p.kubectl("", "delete", "sandboxenv", "env")
	p.awaitGone(&v1alpha1.SandboxPool{}, "a")
}

// testMembersMoved: callers do not notice that members change groups, running sandboxes continue, and each group keeps its
// ceiling in the end.
func testMembersMoved(p *place) {
	p.apply(templateManifest + "---" + groupsManifest)
	p.awaitIdle("a", 1)
	p.awaitIdle("b", 1)
	var lasting []*sandboxv1.Sandbox
	for _, group := range []string{"one", "two"} {
		got, err := p.waiting(p.ctx, group)
		p.Must(err)
		lasting = append(lasting, got)
	}
	if lasting[0].GetPool() != "a" || lasting[1].GetPool() != "b" {
		p.t.Errorf("the groups' sandboxes are of pools %s and %s", lasting[0].GetPool(), lasting[1].GetPool())
	}
	a, b := p.Pool("a").UID, p.Pool("b").UID
	var load sync.WaitGroup
	var served atomic.Int32
	ctx, stop := context.WithCancel(p.ctx)
	defer load.Wait()
	defer stop()
	for range 6 {
		load.Go(func() {
			for ctx.Err() == nil {
				got, err := p.waiting(p.ctx, "")
				if err != nil {
					p.t.Errorf("a claim failed while members moved: %v", err)
					return
				}
				served.Add(1)
				if _, err := p.sandboxes.ReleaseSandbox(p.ctx, &sandboxv1.ReleaseSandboxRequest{Id: got.GetId()}); err != nil {
					p.t.Errorf("a release failed while members moved: %v", err)
					return
				}
			}
		})
	}
	groups := [2]string{"one", "two"}
	for range 7 {
		before := served.Load()
		groups[0], groups[1] = groups[1], groups[0]
		p.apply(strings.NewReplacer("scalingGroup: one", "scalingGroup: "+groups[0], "scalingGroup: two",
			"scalingGroup: "+groups[1]).Replace(groupsManifest))
		planetest.Eventually(p.t, "the pools to follow, and more claims", func() error {
			for i, name := range []string{"a", "b"} {
				if got := p.Pool(name).Labels[v1alpha1.LabelScalingGroup]; got != groups[i] {
					return fmt.Errorf("pool %s is of group %s", name, got)
				}
			}
			n := served.Load() - before
			return wait.If(n >= 6, n)
		})
	}
	stop()
	load.Wait()
	for _, s := range lasting {
		checkStillRuns(p, s.GetId())
	}
	if p.Pool("a").UID != a || p.Pool("b").UID != b {
		p.t.Error("a pool was made anew")
	}
	planetest.Eventually(p.t, "groups below their ceilings", func() error {
		desired := map[string]int32{}
		for _, m := range p.Env("env").Spec.Clusters[0].Members {
			desired[m.Config.ScalingGroup] += p.Pool(m.Name).Spec.Replicas
		}
		for _, g := range p.Env("env").Status.ScalingGroups {
			if n := desired[g.Name]; n < 1 || n > 3 || g.TotalDesired != n {
				return fmt.Errorf("group %s has %d replicas, shown as %d", g.Name, n, g.TotalDesired)
			}
		}
		return nil
	})
	for _, s := range lasting {
		p.release(s.GetId())
	}
	p.awaitIdle("a", 1)
	p.awaitIdle("b", 1)
}
