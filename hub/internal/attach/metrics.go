// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/telemetry"
)

type metrics struct {
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	late     prometheus.Counter
	orphans  prometheus.Counter
	records  prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atoll_hub_dispatch_seconds",
			Help: "Time from handing a call to a worker's stream to its response, by call and outcome: a disposition, not_sent or " +
				"unclear.",
			Buckets: telemetry.CallSeconds,
		}, []string{"call", "outcome"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atoll_hub_dispatches_in_flight", Help: "Calls to which workers have not responded yet.",
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_hub_receipts_late_total", Help: "Calls that a worker did not confirm within a second, which makes it the last choice.",
		}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_hub_orphans_released_total", Help: "Sandboxes that arrived after their claim had moved on, and were released.",
		}),
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_hub_ended_dropped_total", Help: "Records of ended sandboxes that were too large to be stored.",
		}),
	}
}

// Register adds the metrics of dispatches.
func (s *Server) Register(registry prometheus.Registerer) error {
	m := s.metrics
	for _, c := range []prometheus.Collector{m.seconds, m.inFlight, m.late, m.orphans, m.records} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics of dispatches: %w", err)
		}
	}
	return nil
}

func (m *metrics) dispatched(d *federationv1.Dispatch, took time.Duration, answer *federationv1.Answer, err error) {
	m.seconds.WithLabelValues(link.CallName(d), outcomeLabel(answer, err)).Observe(took.Seconds())
}

// outcomeLabel returns the outcome of a dispatch as a label for metrics and traces.
func outcomeLabel(answer *federationv1.Answer, err error) string {
	switch {
	case errors.Is(err, ErrNotConnected):
		return "not_sent"
	case errors.Is(err, context.Canceled): // the caller has left
		return "left"
	case err != nil:
		return "unclear"
	}
	name, ok := federationv1.Disposition_name[int32(answer.GetDisposition())]
	if !ok {
		return "unknown" // of a newer worker; a label has few values
	}
	return strings.ToLower(name)
}
