// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
)

type metrics struct {
	reports    *prometheus.CounterVec
	dispatches *prometheus.CounterVec
	unacked    prometheus.Gauge
}

func newMetrics() metrics {
	return metrics{
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_hub_reports_total", Help: "Reports sent to the hub: complete ones, and deltas.",
		}, []string{"kind"}),
		dispatches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_hub_dispatches_total", Help: "Calls of the hub, by call and disposition.",
		}, []string{"call", "outcome"}),
		unacked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atoll_worker_hub_reports_unacknowledged", Help: fmt.Sprintf("Reports that the hub has not acknowledged; at %d no more are sent.",
				window),
		}),
	}
}

// register registers the metrics. Only the leader of a cluster's workers is connected.
func (a *Agent) register(registry prometheus.Registerer) error {
	connected := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_worker_hub_connected", Help: "Whether a hub accepts this worker's reports (1); 0 also for a follower, and without a hub.",
	}, func() float64 {
		if a.Connected() {
			return 1
		}
		return 0
	})
	incarnation := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_worker_incarnation", Help: "The number of this leadership; 0 for a follower.",
	}, func() float64 { return float64(a.Incarnation()) })
	executing := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_worker_hub_dispatches_in_flight",
		Help: fmt.Sprintf("Calls of the hub that are being carried out, at most %d claims and %d others.", maxClaims, maxCalls),
	}, func() float64 { return float64(a.slots.taken()) })
	m := a.metrics
	for _, c := range []prometheus.Collector{m.reports, m.dispatches, m.unacked, connected, incarnation, executing} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics of the link: %w", err)
		}
	}
	return nil
}

func (m metrics) reported(r *federationv1.Report) {
	kind := "delta"
	if r.GetComplete() {
		kind = "complete"
	}
	m.reports.WithLabelValues(kind).Inc()
}

func (m metrics) carriedOut(d *federationv1.Dispatch, answer *federationv1.Answer) {
	m.dispatches.WithLabelValues(link.CallName(d), strings.ToLower(answer.GetDisposition().String())).Inc()
}
