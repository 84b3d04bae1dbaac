// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// calls measures every call of the public API, by method and gRPC code: both are few, whatever callers send.
func calls(registry prometheus.Registerer) (grpc.UnaryServerInterceptor, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "atoll_hub_api_call_seconds",
		Help:    "Time of a call of the public API, gRPC or REST, by method and by gRPC code.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
	}, []string{"method", "code"})
	if registry != nil {
		if err := registry.Register(seconds); err != nil {
			return nil, fmt.Errorf("registering metrics of the API: %w", err)
		}
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		began := time.Now()
		resp, err := handler(ctx, req)
		method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
		seconds.WithLabelValues(method, status.Code(err).String()).Observe(time.Since(began).Seconds())
		return resp, err
	}, nil
}
