// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// Metrics count watches. A nil one counts nothing.
type Metrics struct {
	open   prometheus.Gauge
	ended  *prometheus.CounterVec
	events *prometheus.CounterVec
}

// NewMetrics registers metrics with a prefix: atoll_hub or atoll_worker.
func NewMetrics(registry prometheus.Registerer, prefix string) (*Metrics, error) {
	m := &Metrics{
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "_watches", Help: "Watches of sandboxes under way."}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_watches_ended_total",
			Help: "Watches that have ended or were refused, by outcome: ok if the caller left, else the reason. One that is expired missed what " +
				"had ended; one with deadline did not take an event in time.",
		}, []string{"outcome"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_watch_events_total", Help: "Events that watches were sent, by kind.",
		}, []string{"kind"}),
	}
	for _, c := range []prometheus.Collector{m.open, m.ended, m.events} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of watches: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) began() {
	if m != nil {
		m.open.Inc()
	}
}

func (m *Metrics) left() {
	if m != nil {
		m.open.Dec()
	}
}

// over counts the end of a watch.
func (m *Metrics) over(ctx context.Context, err error) {
	if m == nil {
		return
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	outcome := "ok"
	if err != nil && !errors.Is(err, context.Canceled) {
		outcome = strings.ToLower(string(problem.FromError(err).Reason))
	}
	m.ended.WithLabelValues(outcome).Inc()
}

func (m *Metrics) sent(kind sandboxv1.SandboxEvent_Type) {
	if m != nil {
		m.events.WithLabelValues(kind.String()).Inc()
	}
}
