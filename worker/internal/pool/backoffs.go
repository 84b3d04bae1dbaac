// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"navix.sh/atoll/worker/internal/sandbox"
)

// backoffForgotten is how long a node must delay no container before resets are tried there again. Its kubelet may have been reconfigured.
const backoffForgotten = time.Hour

// backoffs records, for each node, how long its kubelet was seen to delay a restarted container. The API does not show how a kubelet is
// configured.
type backoffs struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	nodes map[string]backoff
}

type backoff struct {
	longest time.Duration
	last    time.Time
}

func newBackoffs(clk clock.PassiveClock) *backoffs {
	return &backoffs{clock: clk, nodes: map[string]backoff{}}
}

// observe checks Pods whose image is being swapped, and returns each node's longest recent delay. Other crashing Pods are ignored: one
// pool's crashes must not stop the resets of all (I14). Memory is bounded by the nodes (I10).
func (b *backoffs) observe(pods []*corev1.Pod) map[string]time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	for _, pod := range pods {
		if phase := sandbox.PhaseOf(pod); phase != sandbox.Starting && phase != sandbox.Stopping {
			continue
		}
		if held, ok := sandbox.HeldBack(pod); ok {
			b.nodes[pod.Spec.NodeName] = backoff{longest: max(held, b.nodes[pod.Spec.NodeName].longest), last: now}
		}
	}
	maps.DeleteFunc(b.nodes, func(_ string, s backoff) bool { return now.Sub(s.last) > backoffForgotten })
	if len(b.nodes) == 0 {
		return nil
	}
	longest := make(map[string]time.Duration, len(b.nodes))
	for node, s := range b.nodes {
		longest[node] = s.longest
	}
	return longest
}

const (
	newPodUnknown = 5 * time.Second
	newPodMin     = 2 * time.Second // times in a Pod's status have whole seconds
	newPodMax     = 2 * time.Minute
	newPodSamples = 50
)

// newPodTime returns how long a new Pod of the pool takes: the median time from the kubelet's first status to Ready, both by the kubelet's
// clock. It considers only Pods whose container has started once.
func newPodTime(pods []*corev1.Pod) time.Duration {
	var took []time.Duration
	for _, pod := range pods {
		if c := sandbox.ReadyCondition(pod); c != nil && restarts(pod) == 0 && pod.Status.StartTime != nil {
			took = append(took, c.LastTransitionTime.Sub(pod.Status.StartTime.Time))
		}
		if len(took) == newPodSamples {
			break
		}
	}
	if len(took) == 0 {
		return newPodUnknown
	}
	slices.Sort(took)
	return min(max(took[len(took)/2], newPodMin), newPodMax)
}
