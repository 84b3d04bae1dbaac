// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/telemetry"
)

// calls measures every call of the public API by method and gRPC code. The number of both is small, whatever callers send. Calls that are
// refused before they are read count as well; over REST their method is unknown.
type calls struct {
	seconds *prometheus.HistogramVec
	clock   clock.PassiveClock
}

func newCalls(registry prometheus.Registerer, clk clock.PassiveClock) (*calls, error) {
	c := &calls{clock: clk, seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "atoll_hub_api_call_seconds",
		Help:    "Time of a call of the public API, gRPC or REST, by method and by gRPC code.",
		Buckets: telemetry.CallSeconds,
	}, []string{"method", "code"})}
	if registry != nil {
		if err := registry.Register(c.seconds); err != nil {
			return nil, fmt.Errorf("registering metrics of the API: %w", err)
		}
	}
	return c, nil
}

func (c *calls) observe(method string, began time.Time, err error) {
	method = method[strings.LastIndexByte(method, '/')+1:]
	c.seconds.WithLabelValues(cmp.Or(method, "REST"), status.Code(err).String()).Observe(c.clock.Since(began).Seconds())
}

func (c *calls) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	began := c.clock.Now()
	resp, err := handler(ctx, req)
	c.observe(info.FullMethod, began, err)
	return resp, err
}

// admit measures refusals.
func (c *calls) admit(admit serve.Admit) serve.Admit {
	return func(ctx context.Context, method string, authorization []string) (string, error) {
		began := c.clock.Now()
		caller, err := admit(ctx, method, authorization)
		if err != nil {
			c.observe(method, began, err)
		}
		return caller, err
	}
}
