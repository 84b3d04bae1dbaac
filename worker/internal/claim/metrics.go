// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/idle"
)

type metrics struct {
	claims  *prometheus.HistogramVec
	writes  *prometheus.HistogramVec
	queue   prometheus.Histogram
	refused *prometheus.CounterVec
	endings *prometheus.CounterVec
}

var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		claims: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atoll_worker_claim_seconds", Buckets: seconds,
			Help: "Time from a claim's arrival to its answer, by outcome: Granted or the error's reason.",
		}, []string{"outcome"}),
		writes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atoll_worker_claim_write_seconds", Buckets: seconds,
			Help: "Time of one claim write, repetitions after an unclear outcome included.",
		}, []string{"outcome"}),
		queue: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "atoll_worker_claim_assigned_seconds", Buckets: seconds,
			Help: "Time from a claim's arrival to the Pod that carries it.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_claims_turned_away_total",
			Help: "Claims that got no Pod, by why: Displaced made room in a full queue for a team and user that had fewer claims in it.",
		}, []string{"reason"}),
		endings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_claim_ended_sandboxes_total",
			Help: "Sandboxes that have ended, by stop reason, and by cause where a timeout or a hook of theirs was it.",
		}, []string{"reason", "cause"}),
	}
	if registry == nil {
		return m, nil
	}
	return m, errors.Join(registry.Register(m.claims), registry.Register(m.writes), registry.Register(m.queue),
		registry.Register(m.refused), registry.Register(m.endings))
}

func (m *metrics) claimed(took time.Duration, err error) {
	result := "Granted"
	if err != nil {
		result = string(problem.FromError(err).Reason)
	}
	m.claims.WithLabelValues(result).Observe(took.Seconds())
}

func (m *metrics) wrote(took time.Duration, got outcome) {
	m.writes.WithLabelValues(string(got)).Observe(took.Seconds())
}

func (m *metrics) queued(since time.Time, c clock.PassiveClock) {
	m.queue.Observe(c.Since(since).Seconds())
}

func (m *metrics) turnedAway(why admission) { m.refused.WithLabelValues(string(why)).Inc() }

// registerGauges adds what is counted when it is asked for.
func (s *Service) registerGauges(registry prometheus.Registerer) error {
	if registry == nil {
		return nil
	}
	gauge := func(name, help string, count func() int) error {
		return registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			s.mu.Lock()
			defer s.unlock()
			return float64(count())
		}))
	}
	err := errors.Join(
		gauge("atoll_worker_claims_waiting", "Claims that wait for a Pod, over all pools.", func() int {
			waiting := 0
			for _, p := range s.pools {
				waiting += p.waiting.len()
			}
			return waiting
		}),
		gauge("atoll_worker_sandboxes", "Sandboxes on Pods.", func() int { return len(s.byID) }),
		gauge("atoll_worker_ended_records_pending", "Records of ended sandboxes that the hub has not stored yet.", func() int { return len(s.ended.outbox) }),
	)
	if err != nil {
		return fmt.Errorf("registering metrics of claims: %w", err)
	}
	return nil
}

// hasEnded counts a sandbox that has ended. Its reasons were read from a Pod, where anything can stand.
func (m *metrics) hasEnded(reason, cause string) {
	switch idle.Reason(cause) {
	case idle.IdleTimeout, idle.MaxLifetime, idle.FirstActivityTimeout, startupTimeout, hooks.ReasonFailed:
	default:
		cause = ""
	}
	switch v1alpha1.SandboxStopReason(reason) {
	case v1alpha1.SandboxStopReasonCompleted, v1alpha1.SandboxStopReasonCanceled, v1alpha1.SandboxStopReasonReleased, v1alpha1.SandboxStopReasonFailed:
	default:
		reason = "Other"
	}
	m.endings.WithLabelValues(reason, cause).Inc()
}
