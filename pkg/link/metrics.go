// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Metrics count the traffic of links.
type Metrics struct {
	streams     prometheus.Gauge
	disconnects *prometheus.CounterVec
	frames      *prometheus.CounterVec
	bytes       *prometheus.CounterVec
	dropped     *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atoll_link_streams", Help: "Streams that are open."}),
		disconnects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_link_disconnects_total", Help: "Attempts and streams of a worker that ended, by gRPC code."}, []string{"code"}),
		frames: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_link_frames_total", Help: "Frames by direction and kind."}, []string{"direction", "kind"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_link_bytes_total", Help: "Bytes of frames on the wire by direction."}, []string{"direction"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_link_frames_dropped_total", Help: "Frames that could not be sent or read, and were dropped alone.",
		}, []string{"direction", "kind"}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.streams, m.disconnects, m.frames, m.bytes, m.dropped} {
		errs = append(errs, registry.Register(c))
	}
	return m, errors.Join(errs...)
}

// drop counts a dropped frame.
func (m *Metrics) drop(direction string, frame proto.Message) {
	if m != nil {
		m.dropped.WithLabelValues(direction, kind(frame)).Inc()
	}
}

func (m *Metrics) disconnected(err error) {
	if m == nil {
		return
	}
	code := codes.OK
	if err != nil {
		code = status.Code(err)
	}
	m.disconnects.WithLabelValues(code.String()).Inc()
}

func (m *Metrics) handler() stats.Handler {
	if m == nil {
		return ignore{}
	}
	return observer{m}
}

type ignore struct{}

func (ignore) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (ignore) HandleRPC(context.Context, stats.RPCStats)                         {}
func (ignore) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (ignore) HandleConn(context.Context, stats.ConnStats)                       {}

type observer struct{ *Metrics }

func (observer) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (observer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (observer) HandleConn(context.Context, stats.ConnStats)                       {}

func (o observer) HandleRPC(_ context.Context, event stats.RPCStats) {
	switch e := event.(type) {
	case *stats.Begin:
		o.streams.Inc()
	case *stats.End:
		o.streams.Dec()
	case *stats.InPayload:
		o.frame("in", e.Payload, e.WireLength)
	case *stats.OutPayload:
		o.frame("out", e.Payload, e.WireLength)
	}
}

func (o observer) frame(direction string, payload any, size int) {
	o.bytes.WithLabelValues(direction).Add(float64(size))
	o.frames.WithLabelValues(direction, kind(payload)).Inc()
}

// kind returns the name of the field that is set in the only oneof of a frame.
func kind(payload any) string {
	message, ok := payload.(proto.Message)
	if !ok {
		return "unknown"
	}
	return nameOf(message, "body")
}

func nameOf(message proto.Message, field protoreflect.Name) string {
	reflected := message.ProtoReflect()
	oneof := reflected.Descriptor().Oneofs().ByName(field)
	if oneof == nil {
		return "unknown"
	}
	if set := reflected.WhichOneof(oneof); set != nil {
		return string(set.Name())
	}
	return "unknown"
}
