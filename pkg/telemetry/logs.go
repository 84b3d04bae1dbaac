// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
)

// LogLine is one line of a log that a collector keeps.
type LogLine struct {
	Time time.Time
	Name string // name of the kind of line
	Body string
}

// Logs sends lines to an OTLP collector. It is used by one goroutine and has no queue of its own: Export returns when the collector has the
// lines, or with the error.
type Logs struct {
	exporter sdklog.Exporter
	provider *sdklog.LoggerProvider
	logger   log.Logger
	records  []sdklog.Record
}

// OpenLogs connects to the collector of the traces, or to that in OTEL_EXPORTER_OTLP_LOGS_ENDPOINT. It does not wait for the connection.
func (f *Flags) OpenLogs(ctx context.Context, service Service) (*Logs, error) {
	if f.Endpoint == "" && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT") == "" {
		return nil, errors.New("there is no collector, want --otlp-endpoint or OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
	}
	var options []otlploggrpc.Option
	if f.Endpoint != "" {
		options = append(options, otlploggrpc.WithEndpointURL(f.Endpoint))
	}
	exporter, err := otlploggrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("preparing to export logs: %w", err)
	}
	from, err := service.resource(ctx)
	if err != nil {
		return nil, fmt.Errorf("describing this process to the collector: %w", err)
	}
	l := &Logs{exporter: exporter}
	l.provider = sdklog.NewLoggerProvider(sdklog.WithProcessor(gather{l}), sdklog.WithResource(from))
	l.logger = l.provider.Logger(scope)
	return l, nil
}

// Export sends lines and waits until the collector has them.
func (l *Logs) Export(ctx context.Context, lines []LogLine) error {
	l.records = l.records[:0]
	for _, line := range lines {
		var r log.Record
		r.SetTimestamp(line.Time)
		r.SetEventName(line.Name)
		r.SetSeverity(log.SeverityInfo)
		r.SetBody(attribute.StringValue(line.Body))
		l.logger.Emit(ctx, r)
	}
	if err := l.exporter.Export(ctx, l.records); err != nil {
		return fmt.Errorf("sending logs to the collector: %w", err)
	}
	return nil
}

// Close ends the connection.
func (l *Logs) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return errors.Join(l.provider.Shutdown(ctx), l.exporter.Shutdown(ctx))
}

// gather collects the records that a logger creates from lines. The SDK's own processors do not report failures.
type gather struct{ to *Logs }

func (g gather) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

func (g gather) OnEmit(_ context.Context, r *sdklog.Record) error {
	g.to.records = append(g.to.records, r.Clone())
	return nil
}

func (gather) Shutdown(context.Context) error   { return nil }
func (gather) ForceFlush(context.Context) error { return nil }
