// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// writes are the API server's own counters of requests that change something.
type writes struct {
	pods   float64 // PATCHes of Pods themselves: claims
	others map[string]float64
}

func (s *stock) writes(ctx context.Context) (writes, error) {
	body, err := s.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return writes{}, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		return writes{}, fmt.Errorf("parsing the API server's metrics: %w", err)
	}
	w := writes{others: map[string]float64{}}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		l := labels(m)
		switch l["verb"] {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
		default:
			continue
		}
		if l["resource"] == "pods" && l["subresource"] == "" && l["verb"] == "PATCH" {
			w.pods += m.GetCounter().GetValue()
			continue
		}
		resource := strings.TrimSuffix(l["resource"]+"/"+l["subresource"], "/")
		if resource == "leases" || resource == "" {
			continue // heartbeats of nodes and leaders, which no claim causes
		}
		w.others[l["verb"]+" "+resource] += m.GetCounter().GetValue()
	}
	return w, nil
}

func labels(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// settle is long enough for what a claim causes afterwards to have been written.
const settle = 4 * time.Second

// countWrites claims the whole stock and counts, at the API server, the Pod writes up to the last answer, and afterwards
// everything else that was written because of it.
func (s *stock) countWrites(ctx context.Context, hub arm) ([]result, error) {
	if err := hub.reset(ctx); err != nil {
		return nil, err
	}
	if err := s.quiet(ctx); err != nil {
		return nil, err
	}
	before, err := s.writes(ctx)
	if err != nil {
		return nil, err
	}
	l := closedLoop(ctx, 1, hub.do)
	answered, err := s.writes(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.quiet(ctx); err != nil {
		return nil, err
	}
	after, err := s.writes(ctx)
	if err != nil {
		return nil, err
	}
	n := float64(len(l.latencies))
	results := []result{
		result{Name: "Pod writes between create and answer", Value: (answered.pods - before.pods) / n, Unit: "1/claim", Samples: len(l.latencies), Errors: l.errors}.exactly(1),
	}
	for verb, count := range after.others {
		if caused := count - before.others[verb]; caused > 0 {
			results = append(results, result{Name: "other writes: " + verb, Value: round(caused / n), Unit: "1/claim", Samples: len(l.latencies)})
		}
	}
	results = append(results, result{Name: "other writes: PATCH pods after the answer", Value: round((after.pods - answered.pods) / n), Unit: "1/claim", Samples: len(l.latencies)})
	return results, nil
}

// quiet waits until the counters stand still for as long as settle.
func (s *stock) quiet(ctx context.Context) error {
	var last writes
	since := time.Now()
	return poll(ctx, "the API server to be quiet", func(ctx context.Context) (bool, error) {
		now, err := s.writes(ctx)
		if err != nil {
			return false, err
		}
		if fmt.Sprint(now.pods, now.others) != fmt.Sprint(last.pods, last.others) {
			last, since = now, time.Now()
		}
		return time.Since(since) > settle, nil
	})
}
