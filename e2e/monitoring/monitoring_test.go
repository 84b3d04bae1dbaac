// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"navix.sh/atoll/e2e/must"
)

func recorder(t *testing.T) *Recorder {
	t.Helper()
	r := NewRecorder()
	for _, c := range []prometheus.Collector{
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atoll_hub_a_total", Help: "Has an = and a \"{quote}\"."},
			[]string{"result", "cause"}),
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: "atoll_hub_wait_seconds", Help: "wait",
			ConstLabels: prometheus.Labels{"file": "x"}}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "atoll_link_c", Help: "c"}, func() float64 { return 1 }),
	} {
		must.Succeed(t, r.Register(c))
	}
	return r
}

func TestQueriesAreHeldToMetrics(t *testing.T) {
	metrics := recorder(t).Metrics("atoll_")
	for expr, want := range map[string]string{
		`sum by (cause) (rate(atoll_hub_a_total{result="x"}[5m])) / on (job) group_left atoll_link_c > 0`: "",
		`histogram_quantile(0.9, sum by (le, file) (rate(atoll_hub_wait_seconds_bucket[5m])))`:            "",
		`atoll_hub_wait_seconds_count + absent(atoll_worker_elsewhere)`:                                   "",
		`max by (cluster) (atoll_link_c{cluster="east"})`:                                                 "",
		`rate(atoll_hub_a[5m])`:                   "there is no metric atoll_hub_a",
		`atoll_hub_a_total_count`:                 "there is no metric",
		`atoll_hub_wait_seconds`:                  "is a histogram",
		`atoll_hub_a_total{reason="x"}`:           "has no label reason",
		`sum by (cluster) (atoll_hub_a_total)`:    "has no label cluster",
		`max(sum by (le) (atoll_link_d))`:         "there is no metric atoll_link_d",
		`sum(rate(atoll_hub_a_total[5m])`:         "parse error",
		`up`:                                      "is of neither",
		`{__name__=~"atoll_.*"}`:                  "is of neither",
		`absent(atoll_hub_gone) or vector(0) > 1`: "there is no metric atoll_hub_gone",
	} {
		err := Check([]Query{{"here", expr}}, metrics, "atoll_hub_", "atoll_link_")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", expr, err, want)
		}
	}
}

func TestLintSeesWhatWasNeverUsed(t *testing.T) {
	r := recorder(t)
	if problems, err := r.Lint(); err != nil || len(problems) != 0 {
		t.Errorf("%v %v", problems, err)
	}
	must.Succeed(t, r.Register(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atoll_hub_calls", Help: "x"}, []string{"a"})))
	if problems, err := r.Lint(); err != nil || len(problems) != 1 || problems[0].Metric != "atoll_hub_calls" {
		t.Errorf("a counter without _total: %v %v", problems, err)
	}
}

// Every alert has a delay, a severity, a summary and what to do; names are not used twice.
func TestAlerts(t *testing.T) {
	seen := map[string]bool{}
	for _, file := range []string{"../../charts/hub/files/monitoring/rules.yaml", "../../charts/worker/files/monitoring/rules.yaml"} {
		data, err := os.ReadFile(file)
		must.Succeed(t, err)
		rules, err := ReadRules(data)
		must.Succeed(t, err)
		for _, g := range rules.Groups {
			if seen[g.Name] || len(g.Rules) == 0 {
				t.Errorf("group %s is there twice, or empty", g.Name)
			}
			seen[g.Name] = true
			for _, r := range g.Rules {
				if err := r.Check(); err != nil || seen[r.Alert] || !strings.HasPrefix(r.Alert, "Atoll") {
					t.Errorf("alert %q: %v, seen before: %v", r.Alert, err, seen[r.Alert])
				}
				seen[r.Alert] = true
			}
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d alerts and groups were read", len(seen))
	}
}

// TestAlertsOnSingleEventsFireAtTheFirst: an increase alone misses the event that a counter's series begins with.
func TestAlertsOnSingleEventsFireAtTheFirst(t *testing.T) {
	const misses = "the first event does not fire it"
	for expr, want := range map[string]string{
		`increase(x_total{a="b"}[1h]) > 0`:                                                           misses,
		`sum by (a) (increase(x_total[15m])) > 0`:                                                    misses,
		`increase(x_total{a="b"}[1h]) > 0 or (x_total{a="b"} unless x_total{a="b"} offset 1h) > 0`:   "",
		`increase(x_total{a="b"}[1h]) > 0 or (x_total unless x_total offset 1h) > 0`:                 misses,
		`sum by (a) ((increase(x_total[15m]) > 0) or (x_total unless x_total offset 15m)) > 0`:       "",
		`sum by (a) ((increase(x_total[15m]) > 0) or (x_total unless x_total offset 5m)) > 0`:        misses,
		`sum(increase(x_total[5m])) > 0`:                                                             "", // it goes on for longer
		`sum(increase(x_total[15m])) > 10`:                                                           "",
		`sum(increase(x_total[15m]) > 0`:                                                             "parse error",
		`(x - time()) / x > 0 or histogram_quantile(0.9, sum by (le) (increase(x_bucket[15m]))) > 1`: "",
	} {
		err := checkFirstEvents(expr, model.Duration(5*time.Minute))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", expr, err, want)
		}
	}
}

// TestAlertsTellHostedClustersApart: what aggregates or joins metrics of workers keeps the label of hosted ones, and the summary has it.
func TestAlertsTellHostedClustersApart(t *testing.T) {
	data, err := os.ReadFile("../../charts/worker/files/monitoring/rules.yaml")
	must.Succeed(t, err)
	rules, err := ReadRules(data)
	must.Succeed(t, err)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			expr, err := parser.ParseExpr(r.Expr)
			must.Succeed(t, err)
			absent := false
			parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
				switch n := node.(type) {
				case *parser.Call:
					absent = absent || n.Func.Name == "absent"
				case *parser.AggregateExpr:
					if slices.Contains(n.Grouping, ofHosted) == n.Without {
						t.Errorf("%s: %s drops the label %s", r.Alert, n, ofHosted)
					}
				case *parser.BinaryExpr:
					if m := n.VectorMatching; m != nil && slices.Contains(m.MatchingLabels, ofHosted) != m.On {
						t.Errorf("%s: %s joins clusters", r.Alert, n)
					}
				}
				return nil
			})
			if !absent && !strings.Contains(r.Annotations["summary"], "{{ with $labels.cluster }}") {
				t.Errorf("%s: the summary does not say which hosted cluster it is: %s", r.Alert, r.Annotations["summary"])
			}
		}
	}
}

// TestLabelsAreHeldToBounds: an unknown label, too many values and a hostile one are found.
func TestLabelsAreHeldToBounds(t *testing.T) {
	for want, use := range map[string]func(r *Recorder){
		"": func(r *Recorder) {
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atoll_hub_a_total"}, []string{"direction"})
			r.MustRegister(v)
			v.WithLabelValues("in").Inc()
		},
		"label user has no bound": func(r *Recorder) {
			r.MustRegister(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atoll_hub_a_total"}, []string{"user"}))
		},
		"label direction has 5 values, want at most 4": func(r *Recorder) {
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atoll_hub_a_total"}, []string{"direction"})
			r.MustRegister(v)
			for i := range 5 {
				v.WithLabelValues(fmt.Sprint(i)).Inc()
			}
		},
		`label env has the hostile value "Evil-1"`: func(r *Recorder) {
			v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "atoll_hub_a"}, []string{"env"})
			r.MustRegister(v)
			v.WithLabelValues("Evil-1").Set(1)
		},
	} {
		r := NewRecorder()
		use(r)
		if err := r.CheckLabels("evil"); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
