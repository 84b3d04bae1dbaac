// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
)

type metrics struct {
	claims     *prometheus.HistogramVec
	stages     *prometheus.HistogramVec
	dispatches *prometheus.CounterVec
	swept      prometheus.Counter
	adopted    prometheus.Counter
	unsent     *prometheus.CounterVec
	unproven   *prometheus.CounterVec
	records    *prometheus.GaugeVec
}

// newMetrics registers with r unless r is nil.
func newMetrics(r prometheus.Registerer, ends *endings) *metrics {
	m := &metrics{
		claims: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atoll_hub_claim_duration_seconds",
			Help: "Time from a create request to its response, by result (OK, CANCELED by its caller, or the reason of the error) and by whether " +
				"it had a key.",
			Buckets: telemetry.CallSeconds,
		}, []string{"result", "keyed"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atoll_hub_claim_stage_seconds",
			Help: "What the time of a claim goes into at the hub: route is the choice of a cluster, once each, and with a key writing it down. " +
				"The stages after it are the worker's.",
			Buckets: telemetry.StageSeconds,
		}, []string{"stage"}),
		dispatches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_claim_dispatches_total",
			Help: "Claims sent to workers, by outcome.",
		}, []string{"outcome"}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_hub_claim_keys_expired_total",
			Help: "Claim keys dropped after their retention.",
		}),
		adopted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_hub_claim_keys_adopted_total",
			Help: "Claim keys that the ledger learned from clusters, after it was lost or restored.",
		}),
		unsent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_claim_keys_unsent_total",
			Help: "Claims that a cluster named and that this hub did not send to it, as far as it knows: they count for nothing. The cluster " +
				"lies, or was away for longer than keys are kept, or the ledger lost writes unnoticed.",
		}, []string{"cluster"}),
		unproven: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_claim_keys_unproven_total",
			Help: "Claims that a cluster named after the ledger was lost, without a proof that a hub sent them: their keys are neither returned " +
				"nor claimed. An older worker keeps no proofs; otherwise the cluster lies.",
		}, []string{"cluster"}),
		records: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "atoll_hub_claim_records",
			Help: "Claim keys that the ledger holds, by state, as counted every five minutes.",
		}, []string{"state"}),
	}
	if r != nil {
		r.MustRegister(m.claims, m.stages, m.dispatches, m.swept, m.adopted, m.unsent, m.unproven, m.records)
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "atoll_hub_ends_unconfirmed",
			Help: "Ends of sandboxes and claims that a cluster has not confirmed. They are sent again.",
		}, func() float64 {
			unconfirmed, _ := ends.count()
			return float64(unconfirmed)
		}))
	}
	return m
}

func (m *metrics) claimed(keyed bool, took time.Duration, err error) {
	result := "OK"
	switch {
	case errors.Is(err, context.Canceled): // not a failure
		result = "CANCELED"
	case err != nil:
		result = string(problem.FromError(err).Reason)
	}
	m.claims.WithLabelValues(result, strconv.FormatBool(keyed)).Observe(took.Seconds())
}

func (m *metrics) routed(took time.Duration) {
	m.stages.WithLabelValues("route").Observe(took.Seconds())
}

func (m *metrics) dispatched(o dispatchOutcome) { m.dispatches.WithLabelValues(string(o)).Inc() }
