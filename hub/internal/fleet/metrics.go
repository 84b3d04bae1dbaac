// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/atoll/pkg/router"
)

type metrics struct {
	reports *prometheus.CounterVec
	asked   *prometheus.CounterVec
	refused *prometheus.CounterVec
}

// No label names a cluster or an Env: both come and go.
func newMetrics(registerer prometheus.Registerer, f *Fleet) (*metrics, error) {
	m := &metrics{
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_reports_total", Help: "Reports of workers, by what became of them.",
		}, []string{"result"}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_complete_reports_asked_total", Help: "Complete reports that the hub asked for, by cause.",
		}, []string{"cause"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_streams_refused_total", Help: "Streams of workers that were refused, by reason.",
		}, []string{"reason"}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.reports, m.asked, m.refused, healthCollector{f}} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the fleet's metrics: %w", err)
		}
	}
	return m, nil
}

var (
	clustersDesc = prometheus.NewDesc("atoll_hub_clusters", "Registered clusters, by health.", []string{"health"}, nil)
	envsDesc     = prometheus.NewDesc("atoll_hub_envs", "Envs in the merged view.", nil, nil)
	outboxDesc   = prometheus.NewDesc("atoll_hub_foreign_pending", "Changed segments that clusters are yet to be told of.", nil, nil)
)

type healthCollector struct{ fleet *Fleet }

func (h healthCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- clustersDesc
	ch <- envsDesc
	ch <- outboxDesc
}

func (h healthCollector) Collect(ch chan<- prometheus.Metric) {
	counts := map[router.Health]int{}
	pending := 0
	for _, c := range *h.fleet.clusters.Load() {
		counts[c.Health()]++
		if s := c.session.Load(); s != nil {
			pending += s.outbox.size()
		}
	}
	for health := router.Fresh; health <= router.Quarantined; health++ {
		ch <- prometheus.MustNewConstMetric(clustersDesc, prometheus.GaugeValue, float64(counts[health]), health.String())
	}
	ch <- prometheus.MustNewConstMetric(envsDesc, prometheus.GaugeValue, float64(len(h.fleet.index.keys(""))))
	ch <- prometheus.MustNewConstMetric(outboxDesc, prometheus.GaugeValue, float64(pending))
}
