// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/atoll/pkg/telemetry"
)

type metrics struct {
	commits  prometheus.Histogram
	failures prometheus.Counter
	dropped  prometheus.Counter
	failing  atomic.Bool
}

// newMetrics registers the metrics unless the registry is nil.
func newMetrics(r prometheus.Registerer, h *History) (*metrics, error) {
	m := &metrics{
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "atoll_worker_history_commit_seconds", Help: "Time of one write of terminal records, of all that came meanwhile.",
			Buckets: telemetry.WriteSeconds,
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_worker_history_failures_total",
			Help: "Writes of terminal records that failed. The Pods of their sandboxes wait.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_worker_history_dropped_total", Help: "Terminal records dropped because of their age or number.",
		}),
	}
	if r == nil {
		return m, nil
	}
	gauge := func(name, help string, value func() float64) error {
		return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	return m, errors.Join(
		r.Register(m.commits), r.Register(m.failures), r.Register(m.dropped),
		gauge("atoll_worker_history_records", "Terminal records of sandboxes that are kept.", func() float64 { return float64(h.Len()) }),
		gauge("atoll_worker_history_failing", "1 while the last write of terminal records has failed: Pods of ended sandboxes wait.",
			func() float64 {
				if m.failing.Load() {
					return 1
				}
				return 0
			}),
	)
}

func (m *metrics) wrote(took time.Duration) {
	m.failing.Store(false)
	m.commits.Observe(took.Seconds())
}

func (m *metrics) failed() {
	m.failing.Store(true)
	m.failures.Inc()
}
