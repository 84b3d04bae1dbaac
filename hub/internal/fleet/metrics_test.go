// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/segment"
)

func gathered(t *testing.T, r prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	must.Succeed(t, err)
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += l.GetValue() + " "
			}
			out[labels] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// The age of a view grows while its cluster is silent, and restarts with its next frame; a cluster without any frame is as old as
// the process.
func TestViewAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		records := &memoryRegistry{records: map[string]Record{"west": {ClusterID: "west", UID: "u", Incarnation: 1, Term: "t"}}}
		f, err := New(t.Context(), Options{Clock: clock.RealClock{}, Registry: records, Metrics: registry})
		must.Succeed(t, err)
		time.Sleep(7 * time.Second)
		east := newOwner(t, "east")
		east.attach(f)
		time.Sleep(5 * time.Second)
		if got := fmt.Sprint(gathered(t, registry, "atoll_hub_view_age_seconds")); got != "map[east :5 west :12]" {
			t.Error(got)
		}
		if got := fmt.Sprint(gathered(t, registry, "atoll_hub_cluster_healthy")); got != "map[east :1 west :0]" {
			t.Error(got)
		}
		if got := fmt.Sprint(gathered(t, registry, "atoll_hub_clusters_awaited")); got != "map[:2]" {
			t.Error(got)
		}
		east.session.Close()
	})
}

// I10: however many Envs exist, the number in labels is bounded.
func TestEnvSeriesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	f, err := New(t.Context(), Options{Clock: clock.RealClock{}, Registry: &memoryRegistry{}, Metrics: registry})
	must.Succeed(t, err)
	east := newOwner(t, "east")
	east.attach(f)
	var all []*segment.Segment
	for i := range maxEnvSeries + 10 {
		all = append(all, pool(segment.Key{Namespace: "default", Name: fmt.Sprintf("env-%04d", i)}, 3))
	}
	east.truth.Apply(segment.Delta{Changed: all})
	east.complete()
	if got := gathered(t, registry, "atoll_hub_env_idle_pods"); len(got) != maxEnvSeries || got["env-0000 default "] != 3 {
		t.Errorf("%d series, the first is %v", len(got), got["env-0000 default "])
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	east.session.Close()
}
