// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"fmt"
	"testing"
	"time"
)

// What a kubelet makes of swaps between two images in quick succession, with nothing of Atoll's involved.
func TestBackoffByHand(t *testing.T) {
	ctx := testContext(t)
	for cluster, limit := range map[string]string{resets: "1s", defaults: "300s"} {
		pod := barePod("swapped")
		begin := time.Now()
		createByHand(ctx, t, cluster, pod)
		runsByHand(ctx, t, cluster, pod, idleImage)
		figures.add("by hand: Pod created to ready", time.Since(begin))
		for i := range 6 {
			image := []string{tenantImage, idleImage}[i%2]
			begin := time.Now()
			swapByHand(ctx, t, cluster, pod, image)
			figures.add(fmt.Sprintf("by hand, limit %s: swap %d, start %d of that image", limit, i+1, i/2+1+i%2), time.Since(begin))
		}
	}
}

// Where the kubelet restarts at once, a Pod is reset again and again. Where it holds back, Atoll notices once, and from then
// on replaces the Pods of that node, so that no claim waits.
func TestReplacedWhereThatIsQuicker(t *testing.T) {
	ctx := testContext(t)
	const cycles = 7
	for cluster, resetsAllowed := range map[string]int{resets: cycles, defaults: cycles - 2} {
		e := newEnv(ctx, t, cluster, "again-"+cluster, 1, closed)
		replacedYet, reset := false, 0
		for i := range cycles {
			begin := time.Now()
			sandbox := e.mustClaim(ctx, t, tenantImage)
			figures.add("claim with swap, again and again, in "+cluster, time.Since(begin))
			begin = time.Now()
			release(ctx, t, sandbox)
			idle := e.waitWarm(ctx, t)[0]
			figures.add("release to warm, again and again, in "+cluster, time.Since(begin))
			if string(idle.UID) == sandbox.GetPodUid() {
				reset++
				if replacedYet {
					t.Errorf("%s: the Pod was reset in cycle %d, after an earlier one was replaced", cluster, i)
				}
			} else {
				replacedYet = true
			}
		}
		t.Logf("%s: %d of %d Pods were reset", cluster, reset, cycles)
		if cluster == resets && reset != cycles || reset > resetsAllowed {
			t.Errorf("%s: %d of %d Pods were reset", cluster, reset, cycles)
		}
	}
}
