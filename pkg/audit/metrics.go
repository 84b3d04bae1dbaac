// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count lines by sink. A nil Metrics counts nothing.
type Metrics struct {
	lines *prometheus.CounterVec
	drops *prometheus.CounterVec
}

// NewMetrics registers the metrics, whose names begin with a prefix: atoll_hub or atoll_worker.
func NewMetrics(registry prometheus.Registerer, prefix string) (*Metrics, error) {
	m := &Metrics{
		lines: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_audit_lines_total", Help: "Lines written to the audit, by sink: stdout, file or otlp."}, []string{"sink"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_audit_dropped_total",
			Help: "Lines of the audit that were lost, by sink and reason: full (too many waited) or failed (the sink)."},
			[]string{"sink", "reason"}),
	}
	for _, c := range []prometheus.Collector{m.lines, m.drops} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of the audit: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) wrote(sink string, n int) {
	if m != nil {
		m.lines.WithLabelValues(sink).Add(float64(n))
	}
}

func (m *Metrics) dropped(sink, reason string, n int) {
	if m != nil {
		m.drops.WithLabelValues(sink, reason).Add(float64(n))
	}
}
