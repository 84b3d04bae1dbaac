// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/pause"
)

type metrics struct {
	endings     *prometheus.CounterVec
	transitions *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		endings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_worker_claim_ended_sandboxes_total",
			Help: "Sandboxes that have ended, by stop reason and failure reason; one that is not usual is Other.",
		}, []string{"reason", "cause"}),
		transitions: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atoll_worker_pause_seconds", Buckets: telemetry.CallSeconds,
			Help: "Time of a pause or resume, by target (Paused, Running) and outcome: Done, Late when it continues, or the error's reason.",
		}, []string{"target", "outcome"}),
	}
	if registry == nil {
		return m, nil
	}
	return m, errors.Join(registry.Register(m.endings), registry.Register(m.transitions))
}

// registerGauges registers the gauges that are computed on each scrape.
func (s *Service) registerGauges(registry prometheus.Registerer) error {
	if registry == nil {
		return nil
	}
	gauge := func(name, help string, count func(*inventory.View) int) error {
		return registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() (n float64) {
			s.inventory.View(func(v *inventory.View) { n = float64(count(v)) })
			return n
		}))
	}
	err := errors.Join(
		gauge("atoll_worker_sandboxes", "Sandboxes on Pods.", func(v *inventory.View) int { return len(v.Sandboxes()) }),
		gauge("atoll_worker_sandboxes_paused", "Sandboxes that have not all of their CPU: paused, or on the way to or from that.",
			func(v *inventory.View) (paused int) {
				for _, p := range v.Sandboxes() {
					if pause.Marked(p.Object()) {
						paused++
					}
				}
				return paused
			}),
		gauge("atoll_worker_ended_records_pending", "Records of ended sandboxes that the hub has not stored yet.",
			func(*inventory.View) int { return s.opts.History.Unsent() }),
	)
	if err != nil {
		return fmt.Errorf("registering metrics of sandboxes: %w", err)
	}
	return nil
}

// causes are the failure reasons, besides those of timeouts, that have a series of their own.
var causes = map[string]bool{
	"": true, StartupTimeout: true, string(hooks.ReasonFailed): true, string(hooks.ReasonSecret): true,
	"Abandoned": true, "Canceled": true, "DuplicateKey": true,
	"Error": true, "OOMKilled": true, "ContainerRestarted": true, "ImagePullBackOff": true,
	"Evicted": true, "EndedByNode": true, "PodDeleted": true, "EvictionByEvictionAPI": true, "DeletionByTaintManager": true,
	"DeletionByPodGC": true, "PreemptionByScheduler": true, "TerminationByKubelet": true, "NodeLost": true,
}

// hasEnded counts a sandbox that has ended. Its reasons come from a Pod and can be any text.
func (m *metrics) hasEnded(reason, cause string) {
	if !causes[cause] && !idle.Reason(cause).Known() {
		cause = "Other"
	}
	switch v1alpha1.SandboxStopReason(reason) {
	case v1alpha1.SandboxStopReasonCompleted, v1alpha1.SandboxStopReasonCanceled, v1alpha1.SandboxStopReasonReleased,
		v1alpha1.SandboxStopReasonFailed:
	default:
		reason = "Other"
	}
	m.endings.WithLabelValues(reason, cause).Inc()
}
