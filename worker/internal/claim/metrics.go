// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/worker/internal/inventory"
)

type metrics struct {
	claims     *prometheus.HistogramVec
	writes     *prometheus.HistogramVec
	queue      prometheus.Histogram
	turnedAway *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		claims: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atoll_worker_claim_seconds", Buckets: telemetry.CallSeconds,
			Help: "Time from a claim's arrival to its response, by outcome: Granted or the error's reason.",
		}, []string{"outcome"}),
		writes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atoll_worker_claim_write_seconds", Buckets: telemetry.CallSeconds,
			Help: "Time of one claim write, repetitions after an unclear outcome included.",
		}, []string{"outcome"}),
		queue: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "atoll_worker_claim_assigned_seconds", Buckets: telemetry.CallSeconds,
			Help: "Time from a claim's arrival to the Pod that carries it.",
		}),
		turnedAway: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_claims_turned_away_total",
			Help: "Claims that got no Pod, by why: Displaced made room in a full queue for a team and user that had fewer claims in it.",
		}, []string{"reason"}),
	}
	if registry == nil {
		return m, nil
	}
	return m, errors.Join(registry.Register(m.claims), registry.Register(m.writes), registry.Register(m.queue),
		registry.Register(m.turnedAway))
}

func (m *metrics) claimed(took time.Duration, err error) {
	outcome := "Granted"
	if err != nil {
		outcome = string(problem.FromError(err).Reason)
	}
	m.claims.WithLabelValues(outcome).Observe(took.Seconds())
}

// registerGauges registers the gauges that are computed at each scrape.
func (s *Service) registerGauges(registry prometheus.Registerer) error {
	if registry == nil {
		return nil
	}
	err := registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_worker_claims_waiting", Help: "Claims that wait for a Pod, over all pools.",
	}, func() (waiting float64) {
		s.view(func(_ *inventory.View, shared *shared) {
			for _, q := range shared.queues {
				waiting += float64(q.len())
			}
		})
		return waiting
	}))
	if err != nil {
		return fmt.Errorf("registering metrics of claims: %w", err)
	}
	return nil
}
