// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// shutdownTimeout bounds the export of the last spans. It is shorter than what remains of a Pod's grace period.
const shutdownTimeout = 3 * time.Second

// Flags are the flags of tracing. All settings but the endpoint come from OpenTelemetry's own environment: OTEL_TRACES_SAMPLER,
// OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_… and the rest.
type Flags struct {
	Endpoint string
}

// Bind adds the flags.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.Endpoint, "otlp-endpoint", "",
		"URL of an OpenTelemetry collector's OTLP/gRPC endpoint, http:// without TLS or https://; default: OTEL_EXPORTER_OTLP_ENDPOINT, and "+
			"without that no traces")
}

// Validate refuses an invalid endpoint.
func (f *Flags) Validate() error {
	if f.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(f.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" {
		return errors.New("--otlp-endpoint is not valid, want http://HOST:PORT or https://HOST:PORT")
	}
	return nil
}

// Tracing is a process's tracing. The zero value records nothing.
type Tracing struct {
	// Provider creates the spans; nil when tracing is off.
	Provider trace.TracerProvider
	sdk      *sdktrace.TracerProvider
}

// Service identifies the process in its spans. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it.
type Service struct {
	Name, Version, ClusterID string
}

// Open creates the provider, or none without an endpoint. It does not wait for a connection. If the collector is away, only traces are
// lost.
func (f *Flags) Open(ctx context.Context, service Service, log logr.Logger) (*Tracing, error) {
	if !f.enabled(os.Getenv) {
		return &Tracing{}, nil
	}
	if p := protocol(os.Getenv); p != "" && p != "grpc" {
		return nil, fmt.Errorf("the OTLP protocol %q is not built in, want grpc", p)
	}
	var options []otlptracegrpc.Option
	if f.Endpoint != "" {
		options = append(options, otlptracegrpc.WithEndpointURL(f.Endpoint))
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("preparing to export traces: %w", err)
	}
	from, err := service.resource(ctx)
	if err != nil {
		return nil, fmt.Errorf("describing this process to the collector: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Info("Traces were lost", "error", err.Error()) }))
	sdk := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(from))
	return &Tracing{Provider: sdk, sdk: sdk}, nil
}

// Close sends the remaining spans.
func (t *Tracing) Close() error {
	if t == nil || t.sdk == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := t.sdk.Shutdown(ctx); err != nil {
		return fmt.Errorf("sending the last traces: %w", err)
	}
	return nil
}

func (f *Flags) enabled(env func(string) string) bool {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || env("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return f.Endpoint != "" || env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

func protocol(env func(string) string) string {
	if p := env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"); p != "" {
		return p
	}
	return env("OTEL_EXPORTER_OTLP_PROTOCOL")
}

func (s Service) resource(ctx context.Context) (*resource.Resource, error) {
	own := []attribute.KeyValue{attribute.String("service.name", s.Name), attribute.String("service.version", s.Version)}
	if s.ClusterID != "" {
		own = append(own, Cluster.String(s.ClusterID))
	}
	return resource.New(ctx, resource.WithAttributes(own...), resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
}
