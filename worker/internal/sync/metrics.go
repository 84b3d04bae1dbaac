// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of the sync path.
type metrics struct {
	writes *prometheus.CounterVec
	bytes  prometheus.Counter
	dirty  prometheus.Gauge

	unusable prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_sync_writes_total", Help: "Writes of foreign segments by result and cause."}, []string{"result", "cause"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_worker_sync_bytes_total", Help: "Bytes of foreign segments written."}),
		dirty: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atoll_worker_sync_dirty_envs", Help: "Envs that wait to be looked at."}),
		unusable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_worker_sync_dropped_total", Help: "Parts of the hub's messages about other clusters that could not be used."}),
	}
	if registry == nil {
		return m, nil
	}
	return m, errors.Join(registry.Register(m.writes), registry.Register(m.bytes), registry.Register(m.dirty), registry.Register(m.unusable))
}
