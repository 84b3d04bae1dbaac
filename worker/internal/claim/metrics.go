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
	"navix.sh/atoll/worker/internal/pause"
)

type metrics struct {
	claims  *prometheus.HistogramVec
	writes  *prometheus.HistogramVec
	queue   prometheus.Histogram
	refused *prometheus.CounterVec
	endings *prometheus.CounterVec
	turns   *prometheus.HistogramVec
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
			Help: "Sandboxes that have ended, by stop reason and failure reason; one that is not usual is Other.",
		}, []string{"reason", "cause"}),
		turns: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atoll_worker_pause_seconds", Buckets: seconds,
			Help: "Time of a pause or resume, by target (Paused, Running) and outcome: Done, Late when it goes on, or the error's reason.",
		}, []string{"target", "outcome"}),
	}
	if registry == nil {
		return m, nil
	}
	return m, errors.Join(registry.Register(m.claims), registry.Register(m.writes), registry.Register(m.queue),
		registry.Register(m.refused), registry.Register(m.endings), registry.Register(m.turns))
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

func (m *metrics) turned(target pause.Target, took time.Duration, late bool, err error) {
	result := "Done"
	switch {
	case err != nil:
		result = string(problem.FromError(err).Reason)
	case late:
		result = "Late"
	}
	m.turns.WithLabelValues(string(target), result).Observe(took.Seconds())
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
		gauge("atoll_worker_sandboxes_paused", "Sandboxes that have not all of their CPU: paused, or on the way to or from that.", func() int {
			paused := 0
			for _, e := range s.byID {
				if pause.Marked(e.pod) {
					paused++
				}
			}
			return paused
		}),
		gauge("atoll_worker_ended_records_pending", "Records of ended sandboxes that the hub has not stored yet.", func() int { return s.opts.History.Unsent() }),
	)
	if err != nil {
		return fmt.Errorf("registering metrics of claims: %w", err)
	}
	return nil
}

// causes are the failure reasons that have a series of their own.
var causes = map[string]bool{
	"": true, string(idle.IdleTimeout): true, string(idle.MaxLifetime): true, string(idle.FirstActivityTimeout): true, startupTimeout: true, string(hooks.ReasonFailed): true,
	"Abandoned": true, "Canceled": true, "DuplicateKey": true,
	"Error": true, "OOMKilled": true, "ContainerRestarted": true, "ImagePullBackOff": true,
	"Evicted": true, "EndedByNode": true, "PodDeleted": true, "EvictionByEvictionAPI": true, "DeletionByTaintManager": true,
	"DeletionByPodGC": true, "PreemptionByScheduler": true, "TerminationByKubelet": true, "NodeLost": true,
}

// hasEnded counts a sandbox that has ended. Its reasons were read from a Pod, where anything can stand.
func (m *metrics) hasEnded(reason, cause string) {
	if !causes[cause] {
		cause = "Other"
	}
	switch v1alpha1.SandboxStopReason(reason) {
	case v1alpha1.SandboxStopReasonCompleted, v1alpha1.SandboxStopReasonCanceled, v1alpha1.SandboxStopReasonReleased, v1alpha1.SandboxStopReasonFailed:
	default:
		reason = "Other"
	}
	m.endings.WithLabelValues(reason, cause).Inc()
}
