// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds on what one program may hold, derived from the size of the federation. They are generous: they detect growth over time or with the
// rate of events, not moderate excess.
const (
	baseGoroutines    = 1000
	clusterGoroutines = 50 // of a hub, per cluster
	podGoroutines     = 4  // of calls about its sandbox
	claimGoroutines   = 8  // of a waiting claim and its callers
	baseBytes         = 512 << 20
	memberBytes       = 64 << 10 // of a hub, per member
	podBytes          = 256 << 10
	claimBytes        = 128 << 10     // per waiting claim
	maxUnacknowledged = 16            // credits of a stream
	maxDispatches     = 4*8192 + 4096 // calls that a worker runs at the same time: claims and others
	queueOfPool       = 16_384        // twice the default capacity
	maxEndedRecords   = 100_000
)

// sizes are the units of the bounds.
type sizes struct{ clusters, envs, members, pods, pools, waiting int }

func (s *Snapshot) sizes() sizes {
	n := sizes{clusters: len(s.Clusters)}
	if s.Hub != nil {
		n.clusters = max(n.clusters, len(s.Hub.Clusters))
		for _, c := range s.Hub.Clusters {
			n.members += int(c.GetMembers())
			n.pods += int(c.GetIdle()) + int(c.GetRunning()) + int(c.GetDesired())
		}
		n.envs, n.pools = len(s.Hub.Envs), n.members
	}
	var envs, pools, pods int
	for i := range s.Clusters {
		c := &s.Clusters[i]
		envs, pools, pods = envs+len(c.Envs), pools+len(c.Pools), pods+len(c.Pods)
	}
	n.envs, n.members, n.pools, n.pods = max(n.envs, envs), max(n.members, pools), max(n.pools, pools), max(n.pods, pods)
	for _, p := range s.Programs {
		n.waiting += int(p.Values["atoll_worker_claims_waiting"]) // bounded separately
	}
	return n
}

// programsAreBounded checks that a program's use is bounded by the federation's size, not by time or by the rate of events.
func programsAreBounded(s *Snapshot) []Finding {
	n := s.sizes()
	type bound struct {
		metric string
		limit  int
		why    string
	}
	both := []bound{
		{"go_goroutines", baseGoroutines + clusterGoroutines*n.clusters + podGoroutines*n.pods + claimGoroutines*n.waiting,
			"goroutines by clusters, Pods and claims that wait"},
		// Not the resident memory, which includes that of the race detector and of mapped files.
		{"go_memstats_sys_bytes", baseBytes + memberBytes*n.members + podBytes*n.pods + claimBytes*n.waiting,
			"memory by members, Pods and claims that wait"},
	}
	hub := []bound{
		{"atoll_hub_envs", n.envs, "no more Envs than there are"},
		{"atoll_hub_foreign_pending", n.envs * n.clusters * n.clusters, "one pending change an Env, about and for each cluster"},
		{"atoll_hub_dispatches_in_flight", maxDispatches * max(n.clusters, 1), "what workers carry out at a time"},
	}
	worker := []bound{
		{"atoll_worker_hub_reports_unacknowledged", maxUnacknowledged, "the credits of a stream"},
		{"atoll_worker_hub_dispatches_in_flight", maxDispatches, "what a worker carries out at a time"},
		{"atoll_worker_claims_waiting", queueOfPool * max(n.pools, 1), "the queues of all pools"},
		{"atoll_worker_sandboxes", n.pods, "no more sandboxes than Pods"},
		{"atoll_worker_ended_records_pending", maxEndedRecords, "the configured history"},
	}
	var found []Finding
	for _, p := range s.Programs {
		own := worker
		if p.isHub() {
			own = hub
		}
		for _, b := range slices.Concat(both, own) {
			if value, ok := p.Values[b.metric]; ok && value > float64(b.limit) {
				found = append(found, Finding{Invariant: "I10", Cluster: p.Name, Object: "metric " + b.metric, passing: true, identity: "too much",
					Wrong: fmt.Sprintf("is %.0f", value), Expected: fmt.Sprintf("at most %d: %s", b.limit, b.why)})
			}
		}
	}
	return found
}

func (p Program) isHub() bool {
	for name := range p.Values {
		if strings.HasPrefix(name, "atoll_hub_") {
			return true
		}
	}
	return false
}
