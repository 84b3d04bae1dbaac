// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// maxPoolSeries bounds the series that carry a pool's name.
const maxPoolSeries = 1000

// Values of the label verb.
const (
	verbMark   = "mark"
	verbUnmark = "unmark"
)

type metrics struct {
	decisions *prometheus.CounterVec
	probes    *prometheus.CounterVec
	marks     *prometheus.CounterVec
	desired   *prometheus.GaugeVec

	mu     sync.Mutex
	series map[types.NamespacedName]bool
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_autoscale_decisions_total",
			Help: "Decisions of the autoscaler about a pool by direction and reason: all that change replicas, and others when the reason is " +
				"another than before.",
		}, []string{"direction", "reason"}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_autoscale_attempts_total",
			Help: "Attempts to grow a pool, by the result of admission.",
		}, []string{"result"}),
		marks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_autoscale_marks_total",
			Help: "Idle Pods that were marked for scale-down, or kept after all.",
		}, []string{"verb"}),
		desired: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "atoll_worker_autoscale_desired_replicas",
			Help: "Replicas that a pool is to have. Only the first 1000 pools.",
		}, []string{"namespace", "pool"}),
		series: map[types.NamespacedName]bool{},
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.decisions, m.probes, m.marks, m.desired} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) setDesired(pool types.NamespacedName, replicas int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.series[pool] {
		if len(m.series) >= maxPoolSeries {
			return
		}
		m.series[pool] = true
	}
	m.desired.WithLabelValues(pool.Namespace, pool.Name).Set(float64(replicas))
}

func (m *metrics) forget(pool types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.series[pool] {
		delete(m.series, pool)
		m.desired.DeleteLabelValues(pool.Namespace, pool.Name)
	}
}
