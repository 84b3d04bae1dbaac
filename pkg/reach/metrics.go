// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/telemetry"
)

// Metrics count conversations.
type Metrics struct {
	open    *prometheus.GaugeVec
	opened  *prometheus.CounterVec
	bytes   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// NewMetrics registers metrics with a prefix: atoll_hub or atoll_worker. With a nil registry they are not registered.
func NewMetrics(registry prometheus.Registerer, prefix string) (*Metrics, error) {
	m := &Metrics{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: prefix + "_tunnels", Help: "Conversations under way, by kind: exec, logs or port of a sandbox, kubernetes."}, []string{"kind"}),
		opened: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_tunnels_opened_total",
			Help: "Conversations that callers asked for, by kind and outcome: ok or the reason of the refusal."},
			[]string{"kind", "outcome"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_tunnel_bytes_total", Help: "Bytes of conversations, by kind and direction: in to the sandbox, out of it."},
			[]string{"kind", "direction"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "_tunnel_open_seconds", Help: "Time until a sandbox was reached, by kind.",
			Buckets: telemetry.OpenSeconds}, []string{"kind"}),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.open, m.opened, m.bytes, m.seconds} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of tunnels: %w", err)
		}
	}
	return m, nil
}

// Measure counts the conversations that an opener opens.
func (m *Metrics) Measure(o Opener) Opener { return measuring{m, o} }

type measuring struct {
	metrics *Metrics
	opener  Opener
}

func (m measuring) Open(ctx context.Context, id string, what *federationv1.ReachCall) (Tunnel, error) {
	return m.metrics.Opened(Kind(what), func() (Tunnel, error) { return m.opener.Open(ctx, id, what) })
}

// Opened counts the conversation that open opens. kind must be one of a small, fixed set.
func (m *Metrics) Opened(kind string, open func() (Tunnel, error)) (Tunnel, error) {
	timer := prometheus.NewTimer(m.seconds.WithLabelValues(kind))
	tunnel, err := open()
	outcome := "ok"
	if err != nil {
		outcome = strings.ToLower(string(problem.FromError(err).Reason))
	}
	m.opened.WithLabelValues(kind, outcome).Inc()
	if err != nil {
		return nil, err
	}
	timer.ObserveDuration()
	running := m.open.WithLabelValues(kind)
	running.Inc()
	return &measured{
		Tunnel: tunnel, over: sync.OnceFunc(running.Dec), in: m.bytes.WithLabelValues(kind, "in"),
		out: m.bytes.WithLabelValues(kind, "out"),
	}, nil
}

type measured struct {
	Tunnel
	in, out prometheus.Counter
	over    func()
}

func (m *measured) Close(reason error) {
	m.over()
	m.Tunnel.Close(reason)
}

func (m *measured) Recv() ([]byte, error) {
	message, err := m.Tunnel.Recv()
	m.out.Add(float64(len(message)))
	return message, err
}

func (m *measured) Send(message []byte) error {
	err := m.Tunnel.Send(message)
	if err == nil {
		m.in.Add(float64(len(message)))
	}
	return err
}
