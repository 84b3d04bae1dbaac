// SPDX-License-Identifier: Apache-2.0

package env

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
)

// metrics are the metrics of the reconciler. None has the Env as a label, so that sums stay readable with any number of Envs.
type metrics struct {
	actions, failures       *prometheus.CounterVec
	conflicts, statusWrites prometheus.Counter
	members                 *prometheus.GaugeVec

	mu sync.Mutex
	// states holds the member counts of each existing Env by state, so that the gauge can subtract them again.
	states map[types.NamespacedName]map[v1alpha1.ObservedMemberState]int
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_env_actions_total", Help: "Actions on members and pools that were carried out.",
		}, []string{"action"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_env_failures_total", Help: "Actions on members and pools that failed.",
		}, []string{"action"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_worker_env_conflicts_total", Help: "Actions abandoned because the Env or pool had changed; they are retried.",
		}),
		statusWrites: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_worker_env_status_writes_total", Help: "Writes of an Env's status.",
		}),
		members: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "atoll_worker_env_members", Help: "Members of this cluster, by state.",
		}, []string{"state"}),
		states: map[types.NamespacedName]map[v1alpha1.ObservedMemberState]int{},
	}
	for _, c := range []prometheus.Collector{m.actions, m.failures, m.conflicts, m.statusWrites, m.members} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// setMembers replaces an Env's part of the gauge, and removes it if there are no members.
func (m *metrics) setMembers(env types.NamespacedName, observed []v1alpha1.EnvObservedMember) {
	states := map[v1alpha1.ObservedMemberState]int{}
	for i := range observed {
		states[observed[i].State]++
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for state, n := range m.states[env] {
		m.members.WithLabelValues(string(state)).Sub(float64(n))
	}
	delete(m.states, env)
	if len(states) == 0 {
		return
	}
	m.states[env] = states
	for state, n := range states {
		m.members.WithLabelValues(string(state)).Add(float64(n))
	}
}
