// SPDX-License-Identifier: Apache-2.0

package allotment

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/atoll/pkg/allotpolicy"
	"navix.sh/atoll/pkg/segment"
)

// maxSeries bounds the groups with series.
const maxSeries = 500

var (
	labels = []string{"namespace", "env", "group", "cluster"}
	rooms  = prometheus.NewDesc("atoll_hub_allotment_room",
		"How far a cluster may grow a scaling group. Only the first 500 groups; every replica has it.", labels, nil)
	most = prometheus.NewDesc("atoll_hub_allotment_may_hold",
		"What a cluster may hold of a scaling group: more than its room until it has confirmed that the rest is gone.", labels, nil)
	ceilings = prometheus.NewDesc("atoll_hub_allotment_max_replicas",
		"maxReplicas of a scaling group, as it is divided.", labels[:3], nil)
	floors = prometheus.NewDesc("atoll_hub_allotment_floor",
		"What a cluster keeps of a scaling group's minReplicas. That of a cluster that is lost the others keep as well.", labels, nil)
	minima = prometheus.NewDesc("atoll_hub_allotment_min_replicas",
		"minReplicas of a scaling group, as it is divided.", labels[:3], nil)
)

// collector collects the metrics of the division.
type collector struct{ *Service }

func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rooms, most, ceilings, floors, minima} {
		out <- d
	}
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	records := *c.state.Load()
	keys := slices.SortedFunc(maps.Keys(records), allotpolicy.Compare)
	gauge := func(d *prometheus.Desc, n int32, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for _, k := range keys[:min(len(keys), maxSeries)] {
		gauge(ceilings, records[k].Max, k.Namespace, k.Env, k.Group)
		gauge(minima, records[k].Min, k.Namespace, k.Env, k.Group)
		for id, share := range records[k].Shares {
			gauge(rooms, share.Room, k.Namespace, k.Env, k.Group, id)
			gauge(most, share.Most, k.Namespace, k.Env, k.Group, id)
			gauge(floors, share.Floor, k.Namespace, k.Env, k.Group, id)
		}
		lost := map[string]int32{}
		for _, l := range records[k].Lost {
			lost[l.Cluster] = segment.Sum(lost[l.Cluster], l.Most)
		}
		for id, n := range lost {
			if _, back := records[k].Shares[id]; !back {
				gauge(most, n, k.Namespace, k.Env, k.Group, id)
			}
		}
	}
}
