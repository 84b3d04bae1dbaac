// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// The outcomes of requests to join and to renew.
const (
	issued  = "issued"
	waits   = "waits"
	refused = "refused"
	failed  = "failed"
)

type metrics struct{ joins, renewals *prometheus.CounterVec }

func newMetrics() *metrics {
	return &metrics{
		joins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_joins_total", Help: "Requests to join, by outcome.",
		}, []string{"outcome"}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_renewals_total", Help: "Certificate requests of attached clusters, by outcome.",
		}, []string{"outcome"}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	return errors.Join(r.Register(m.joins), r.Register(m.renewals))
}
