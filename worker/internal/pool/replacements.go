// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxReplaced is the maximum number of replaced Pods of a pool that are measured at once.
const maxReplaced = 1000

// replacements measures how long a replacement takes to become ready. It pairs Pods that become ready with deleted ones in order, not by
// identity.
type replacements struct{ *perPool[*replaced] }

type replaced struct {
	ready map[types.UID]bool
	went  []time.Time
}

func (r *replacements) at(key types.NamespacedName) *replaced {
	if r.pools[key] == nil {
		r.pools[key] = &replaced{}
	}
	return r.pools[key]
}

// gone records that a Pod was deleted to be replaced.
func (r *replacements) gone(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.at(key); len(p.went) < maxReplaced {
		p.went = append(p.went, r.clock.Now())
	}
}

// observe returns the durations of the replacements that have become ready since the last call.
func (r *replacements) observe(key types.NamespacedName, pods []*corev1.Pod) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now := r.at(key), r.clock.Now()
	first := p.ready == nil
	is := make(map[types.UID]bool, len(pods))
	var took []time.Duration
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || !p.ready[pod.UID] && !ready(pod) {
			continue
		}
		is[pod.UID] = true
		if !first && !p.ready[pod.UID] && len(p.went) > 0 {
			took = append(took, now.Sub(p.went[0]))
			p.went = p.went[1:]
		}
	}
	p.ready = is
	return took
}
