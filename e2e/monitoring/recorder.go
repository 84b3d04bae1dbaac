// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// Metric is a registered name with its type and labels.
type Metric struct {
	Name, Help string
	Type       dto.MetricType
	Labels     []string
}

// Recorder is a registry that records all registrations.
type Recorder struct {
	*prometheus.Registry

	mu      sync.Mutex
	metrics map[string]Metric
}

// NewRecorder returns an empty Recorder.
func NewRecorder() *Recorder {
	return &Recorder{Registry: prometheus.NewRegistry(), metrics: map[string]Metric{}}
}

// Register implements prometheus.Registerer.
func (r *Recorder) Register(c prometheus.Collector) error {
	if err := r.Registry.Register(c); err != nil {
		return err
	}
	return r.record(c)
}

// MustRegister implements prometheus.Registerer.
func (r *Recorder) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// desc is the text of a prometheus.Desc, the only way to read it.
var desc = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: (".*"), constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func (r *Recorder) record(c prometheus.Collector) error {
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		c.Describe(described)
	}()
	var failed error
	r.mu.Lock()
	defer r.mu.Unlock()
	for d := range described {
		parts := desc.FindStringSubmatch(d.String())
		if parts == nil {
			failed = fmt.Errorf("cannot read %s", d)
			continue
		}
		m := Metric{Name: parts[1], Help: strings.Trim(parts[2], `"`), Type: typeOf(c)}
		for _, l := range strings.Split(parts[3], ",") {
			if name, _, ok := strings.Cut(l, "="); ok {
				m.Labels = append(m.Labels, name)
			}
		}
		for _, l := range strings.Split(parts[4], ",") {
			if l = strings.TrimSpace(l); l != "" {
				m.Labels = append(m.Labels, l)
			}
		}
		r.metrics[m.Name] = m
	}
	return failed
}

// typeOf returns gauge for a custom collector: all of ours are gauges, and Lint would report others.
func typeOf(c prometheus.Collector) dto.MetricType {
	switch c.(type) {
	case *prometheus.CounterVec:
		return dto.MetricType_COUNTER
	case *prometheus.HistogramVec, prometheus.Histogram:
		return dto.MetricType_HISTOGRAM
	case prometheus.Gauge, *prometheus.GaugeVec: // a gauge is a Counter as well
		return dto.MetricType_GAUGE
	case prometheus.Counter:
		return dto.MetricType_COUNTER
	}
	return dto.MetricType_GAUGE
}

// Metrics returns the recorded metrics whose name has the prefix.
func (r *Recorder) Metrics(prefix string) []Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Metric
	for _, m := range r.metrics {
		if strings.HasPrefix(m.Name, prefix) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Lint returns promlint's findings for all recorded metrics of Atoll, used or not.
func (r *Recorder) Lint() ([]promlint.Problem, error) {
	var families []*dto.MetricFamily
	for _, m := range r.Metrics(prefix) {
		families = append(families, m.family())
	}
	return promlint.NewWithMetricFamilies(families).Lint()
}

// fewestQueries is a lower bound: a check that finds fewer reads the wrong place.
const fewestQueries = 50

// CheckCharts returns an error for any finding of promlint, and for queries of the charts' dashboards and alerts without a
// metric, among those with these prefixes.
func (r *Recorder) CheckCharts(charts string, prefixes ...string) error {
	problems, err := r.Lint()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range problems {
		errs = append(errs, fmt.Errorf("%s: %s", p.Metric, p.Text))
	}
	queries, err := Queries(charts)
	if err == nil && len(queries) < fewestQueries {
		err = fmt.Errorf("only %d queries in %s", len(queries), charts)
	}
	return errors.Join(append(errs, err, Check(queries, r.Metrics(prefix), prefixes...))...)
}

// family is the metric with one series of it.
func (m Metric) family() *dto.MetricFamily {
	one := &dto.Metric{}
	for _, l := range m.Labels {
		one.Label = append(one.Label, &dto.LabelPair{Name: &l, Value: &l})
	}
	zero, none := 0.0, uint64(0)
	switch m.Type {
	case dto.MetricType_COUNTER:
		one.Counter = &dto.Counter{Value: &zero}
	case dto.MetricType_HISTOGRAM:
		one.Histogram = &dto.Histogram{SampleSum: &zero, SampleCount: &none}
	default:
		one.Gauge = &dto.Gauge{Value: &zero}
	}
	return &dto.MetricFamily{Name: &m.Name, Help: &m.Help, Type: &m.Type, Metric: []*dto.Metric{one}}
}
