// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/worker/internal/pool/status"
)

// Values of the label outcome.
const (
	outcomeDone    = "done"
	outcomeLost    = "lost"
	outcomeError   = "error"
	outcomeRefused = "refused" // by a quota, a limit or a plugin
)

// maxPoolSeries bounds the series that carry a pool's name. The other metrics include the pools beyond it as well.
const maxPoolSeries = 1000

type metrics struct {
	pods         *prometheus.GaugeVec
	waiting      *prometheus.GaugeVec
	actions      *prometheus.CounterVec
	startSeconds prometheus.Histogram
	// How long a Pod is missing between two sandboxes: when it is reset, and when it is replaced.
	recycleSeconds, replaceSeconds prometheus.Histogram

	mu     sync.Mutex
	series map[types.NamespacedName]bool
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "atoll_worker_pool_pods",
			Help: "Pods of a pool by phase; unavailable ones are idle and not ready, and stuck ones of these do not become ready. " +
				"Only the first 1000 pools.",
		}, []string{"namespace", "pool", "phase"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "atoll_worker_pool_claims_waiting",
			Help: "Claims that wait for a Pod of a pool, as of its last reconcile, every 3 s while there are any. Only the first 1000 pools.",
		}, []string{"namespace", "pool"}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_pool_actions_total",
			Help: "What was done to Pods, and why; lost means that another writer was first, refused that a quota, a limit or an admission plugin " +
				"refused it.",
		}, []string{"verb", "reason", "outcome"}),
		startSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "atoll_worker_pool_start_seconds",
			Help:    "From the swap of a sandbox's image, as seen here, to the sandbox running.",
			Buckets: telemetry.StartSeconds,
		}),
		recycleSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "atoll_worker_pool_recycle_seconds",
			Help:    "From the end of a sandbox, as seen here, to its Pod idle again.",
			Buckets: telemetry.StartSeconds,
		}),
		replaceSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "atoll_worker_pool_replace_seconds",
			Help:    "From the deletion of a Pod that is replaced to another one of the pool ready.",
			Buckets: telemetry.ReplaceSeconds,
		}),
		series: map[types.NamespacedName]bool{},
	}
	for _, c := range []prometheus.Collector{m.pods, m.waiting, m.actions, m.startSeconds, m.recycleSeconds, m.replaceSeconds} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) observe(key types.NamespacedName, c *status.Counts, waiting int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.series[key] {
		if len(m.series) >= maxPoolSeries {
			return
		}
		m.series[key] = true
	}
	for phase, n := range map[string]int32{
		"idle": c.Idle, "unavailable": c.Unavailable, "stuck": c.Causes.Pods(), "starting": c.Starting,
		"running": c.Running, "stopping": c.Stopping, "failed": c.Failed,
	} {
		m.pods.WithLabelValues(key.Namespace, key.Name, phase).Set(float64(n))
	}
	m.waiting.WithLabelValues(key.Namespace, key.Name).Set(float64(waiting))
}

func (m *metrics) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.series[key] {
		delete(m.series, key)
		m.waiting.DeleteLabelValues(key.Namespace, key.Name)
		m.pods.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "pool": key.Name})
	}
}
