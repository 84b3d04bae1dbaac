// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

type metrics struct {
	reports *prometheus.CounterVec
	asked   *prometheus.CounterVec
	refused *prometheus.CounterVec

	segments prometheus.Counter
	unsent   prometheus.Counter
}

// maxEnvSeries bounds the series with an Env label: only the first Envs, in order, have them. The number of clusters is small. Series are
// collected on scrape, so that a removed Env or cluster leaves none behind.
const maxEnvSeries = 1000

func newMetrics(registerer prometheus.Registerer, f *Fleet) (*metrics, error) {
	m := &metrics{
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_reports_total", Help: "Reports of workers, by result.",
		}, []string{"result"}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_complete_reports_asked_total", Help: "Complete reports that the hub asked for, by cause.",
		}, []string{"cause"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_streams_refused_total", Help: "Streams of workers that were refused, by reason.",
		}, []string{"reason"}),
		segments: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_hub_segments_refused_total", Help: "Segments of reports that were left out, as not valid or over a limit of their cluster.",
		}),
		unsent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_hub_foreign_dropped_total", Help: "Segments that were not passed on to another cluster, since no frame holds them.",
		}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.reports, m.asked, m.refused, m.segments, m.unsent, healthCollector{f}} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the fleet's metrics: %w", err)
		}
	}
	return m, nil
}

var (
	clustersDesc = prometheus.NewDesc("atoll_hub_clusters", "Registered clusters, by health.", []string{"health"}, nil)
	envsDesc     = prometheus.NewDesc("atoll_hub_envs", "Envs in the merged view.", nil, nil)
	envIdleDesc  = prometheus.NewDesc("atoll_hub_env_idle_pods",
		"Idle Pods of an Env that are ready, over all clusters; of the first 1000 Envs.", []string{"namespace", "env"}, nil)
	ageDesc = prometheus.NewDesc("atoll_hub_view_age_seconds",
		"Age of what is known of a cluster: since its last frame, or since this process began.", []string{"cluster"}, nil)
	healthDesc = prometheus.NewDesc("atoll_hub_cluster_healthy",
		"Whether a cluster is served as usual (1), or is the last choice, unreachable or quarantined (0).", []string{"cluster"}, nil)
	degradedDesc = prometheus.NewDesc("atoll_hub_cluster_degraded",
		"Whether something of what a cluster reports does not count (1); GET /v1/clusters says why.", []string{"cluster"}, nil)
	awaitedDesc = prometheus.NewDesc("atoll_hub_clusters_awaited",
		"Registered clusters that this process has not heard from and still waits for.", nil, nil)
	outboxDesc = prometheus.NewDesc("atoll_hub_foreign_pending", "Changed segments that were not sent to other clusters yet.", nil, nil)
)

type healthCollector struct{ fleet *Fleet }

func (h healthCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- clustersDesc
	ch <- envsDesc
	ch <- outboxDesc
	ch <- envIdleDesc
	ch <- ageDesc
	ch <- healthDesc
	ch <- degradedDesc
	ch <- awaitedDesc
}

func (h healthCollector) Collect(ch chan<- prometheus.Metric) {
	counts := map[router.Health]int{}
	pending, now := 0, h.fleet.now()
	for _, id := range h.fleet.ClusterIDs() {
		c := h.fleet.cluster(id)
		health := c.Health()
		counts[health]++
		healthy := 0.0
		if health == router.Fresh {
			healthy = 1
		}
		ch <- prometheus.MustNewConstMetric(healthDesc, prometheus.GaugeValue, healthy, id)
		degraded := 0.0
		if c.degradation() != "" {
			degraded = 1
		}
		ch <- prometheus.MustNewConstMetric(degradedDesc, prometheus.GaugeValue, degraded, id)
		ch <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, max(0, now-c.Seen()).Seconds(), id)
		if s := c.session.Load(); s != nil {
			pending += s.outbox.size()
		}
	}
	for health := router.Fresh; health <= router.Draining; health++ {
		ch <- prometheus.MustNewConstMetric(clustersDesc, prometheus.GaugeValue, float64(counts[health]), health.String())
	}
	ch <- prometheus.MustNewConstMetric(awaitedDesc, prometheus.GaugeValue, float64(len(h.fleet.Awaited())))
	envs := h.fleet.index.keys("")
	ch <- prometheus.MustNewConstMetric(envsDesc, prometheus.GaugeValue, float64(len(envs)))
	for _, k := range envs[:min(len(envs), maxEnvSeries)] {
		ch <- prometheus.MustNewConstMetric(envIdleDesc, prometheus.GaugeValue, h.fleet.idle(k), k.Namespace, k.Name)
	}
	ch <- prometheus.MustNewConstMetric(outboxDesc, prometheus.GaugeValue, float64(pending))
}

// idle counts the ready idle Pods of reachable clusters.
func (f *Fleet) idle(k segment.Key) float64 {
	view, sum := f.View(k), 0.0
	if view == nil {
		return 0
	}
	for i := range view.Len() {
		if c := view.Candidate(i); c.Cluster.Health().Eligible() {
			sum += float64(c.Member().ReadyIdle)
		}
	}
	return sum
}
