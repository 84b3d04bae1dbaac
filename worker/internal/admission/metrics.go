// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/atoll/pkg/telemetry"
)

// result is the outcome of a question. The number of plugins, which are compiled in, bounds the series.
type result string

const (
	resultAdmitted result = "admitted"
	resultReduced  result = "reduced" // admitted in part, or not at all
	resultError    result = "error"   // no Verdict
)

func resultOf(v Verdict, err error, to int32) result {
	switch {
	case err != nil:
		return resultError
	case v.Whole(to):
		return resultAdmitted
	default:
		return resultReduced
	}
}

type metrics struct {
	verdicts *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics() *metrics {
	return &metrics{
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_admission_answers_total",
			Help: "Verdicts of admission plugins: reduced admits a part or nothing of the request, error is none.",
		}, []string{"plugin", "question", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "atoll_worker_admission_seconds",
			Help:    "Time that admission plugins took.",
			Buckets: telemetry.PluginSeconds,
		}, []string{"plugin"}),
	}
}

func (m *metrics) register(registerer prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.verdicts, m.seconds} {
		if err := registerer.Register(c); err != nil {
			return fmt.Errorf("registering metrics of admission: %w", err)
		}
	}
	return nil
}

func (m *metrics) observe(plugin string, q question, r result, took time.Duration) {
	m.verdicts.WithLabelValues(plugin, string(q), string(r)).Inc()
	m.seconds.WithLabelValues(plugin).Observe(took.Seconds())
}
