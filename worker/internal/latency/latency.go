// SPDX-License-Identifier: Apache-2.0

// Package latency measures the stages of a claim. The parts of a worker that carry out a claim share one histogram, so that the stages are
// defined in one place. A hub measures the stage before them, the choice of a cluster, in its own histogram.
package latency

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/atoll/pkg/telemetry"
)

// Stage is a part of a claim's time in a worker.
type Stage string

// The stages, in their order.
const (
	// Queue: from the claim's arrival until it gets a Pod.
	Queue Stage = "queue"
	// Write: the write on the Pod, including retries after an unclear outcome.
	Write Stage = "write"
	// Swap: until the Pod is ready with the container of the sandbox.
	Swap Stage = "swap"
	// Hook: readiness checks that no kubelet makes, and post-start hooks.
	Hook Stage = "hook"
)

// Recorder records the measurements. A nil Recorder discards them.
type Recorder struct{ seconds *prometheus.HistogramVec }

// New registers the histogram.
func New(registry prometheus.Registerer) (*Recorder, error) {
	r := &Recorder{seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "atoll_worker_claim_stage_seconds",
		Help: "What the time of a claim goes into: queue and write of every claim, swap of those whose Pod had to change its image, hook of " +
			"those with hooks.",
		Buckets: telemetry.CallSeconds,
	}, []string{"stage"})}
	if err := registry.Register(r.seconds); err != nil {
		return nil, fmt.Errorf("registering the stages of claims: %w", err)
	}
	return r, nil
}

// Took records a measurement.
func (r *Recorder) Took(stage Stage, d time.Duration) {
	if r != nil {
		r.seconds.WithLabelValues(string(stage)).Observe(d.Seconds())
	}
}
