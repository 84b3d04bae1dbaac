// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/stats"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/attach"
	"navix.sh/atoll/pkg/telemetry"
)

type metrics struct {
	peers     prometheus.GaugeFunc
	connected prometheus.GaugeFunc
	seconds   *prometheus.HistogramVec
	frames    *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	tunnels   *prometheus.CounterVec
	lost      prometheus.Counter
}

func newMetrics(s *Service) *metrics {
	return &metrics{
		peers: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "atoll_hub_peers", Help: "Other replicas of the hub that are alive, as gossip says.",
		}, func() float64 { return float64(len(s.all())) }),
		connected: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "atoll_hub_peers_connected", Help: "Other replicas of the hub to which this one is connected.",
		}, func() float64 {
			n := 0
			for _, p := range s.all() {
				if p.connected() {
					n++
				}
			}
			return float64(n)
		}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atoll_hub_peer_dispatch_seconds",
			Help: "Time from handing a call to the replica to which its cluster is attached to its outcome, by outcome: answer, not_sent " +
				"or unclear.",
			Buckets: telemetry.CallSeconds,
		}, []string{"outcome"}),
		frames: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_peer_frames_total", Help: "Frames about clusters between replicas, by direction and kind.",
		}, []string{"direction", "kind"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_peer_bytes_total", Help: "Bytes of messages on the connections that this replica opened to others, by direction.",
		}, []string{"direction"}),
		tunnels: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_hub_peer_tunnels_total", Help: "Tunnels through the replica to which their cluster is attached, by kind.",
		}, []string{"kind"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_hub_peer_responses_lost_total",
			Help: "Claims without a key whose response was lost between two replicas; their sandboxes are released.",
		}),
	}
}

// traffic counts the bytes of a connection to another replica.
type traffic struct{ *metrics }

func (traffic) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (traffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (traffic) HandleConn(context.Context, stats.ConnStats)                       {}

func (t traffic) HandleRPC(_ context.Context, event stats.RPCStats) {
	switch e := event.(type) {
	case *stats.InPayload:
		t.bytes.WithLabelValues("in").Add(float64(e.WireLength))
	case *stats.OutPayload:
		t.bytes.WithLabelValues("out").Add(float64(e.WireLength))
	}
}

// Register adds the metrics.
func (s *Service) Register(registry prometheus.Registerer) error {
	m := s.metrics
	for _, c := range []prometheus.Collector{m.peers, m.connected, m.seconds, m.frames, m.bytes, m.tunnels, m.lost} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics of peers: %w", err)
		}
	}
	return nil
}

func (m *metrics) dispatched(took time.Duration, err error) {
	outcome := "answer"
	switch {
	case errors.Is(err, attach.ErrNotConnected):
		outcome = "not_sent"
	case err != nil:
		outcome = "unclear"
	}
	m.seconds.WithLabelValues(outcome).Observe(took.Seconds())
}

func (m *metrics) frame(f *federationv1.RelayFrame, direction string) {
	kind := "unknown"
	switch body := f.GetBody().(type) {
	case *federationv1.RelayFrame_Attached:
		kind = "attached"
	case *federationv1.RelayFrame_Detached:
		kind = "detached"
	case *federationv1.RelayFrame_Heartbeat:
		kind = "heartbeat"
	case *federationv1.RelayFrame_Claims:
		kind = "claims"
	case *federationv1.RelayFrame_Report:
		if kind = "delta"; body.Report.GetReport().GetComplete() {
			kind = "complete"
		}
	}
	m.frames.WithLabelValues(direction, kind).Inc()
}
