// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct{ certificates *prometheus.CounterVec }

func newMetrics() metrics {
	return metrics{certificates: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "atoll_worker_certificates_total",
		Help: "Certificates by how they were asked for (join, renew) and what came of it: issued, waits for an approval, refused when it was " +
			"used, or failed.",
	}, []string{"by", "outcome"})}
}

func (m metrics) certificate(by, outcome string) { m.certificates.WithLabelValues(by, outcome).Inc() }

func (i *Identity) register(registry prometheus.Registerer) error {
	if err := registry.Register(i.metrics.certificates); err != nil {
		return fmt.Errorf("registering metrics of the identity: %w", err)
	}
	return nil
}
