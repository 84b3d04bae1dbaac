// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"

	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/wait"
)

// The API writes that a claim may cause if many claims share a pool's status; and with its release, which replaces the Pod:
// Atoll's, the scheduler's and the kubelet's.
const (
	mostWritesClaim = 1.5
	mostWritesCycle = 14
	// mostPatches are the claim, and the removal of the finalizer once the sandbox has its record; the release is a DELETE.
	mostPatches = 2.05
)

// settle is longer than a claim's later writes take.
const settle = 4 * time.Second

// patchPods is the write of a claim.
const patchPods = "PATCH pods"

// writes are the API server's own counters of write requests, "PATCH pods/status". They omit heartbeats of nodes and leaders,
// which no claim causes.
type writes map[string]float64

func readWrites(ctx context.Context, admin *kubernetes.Clientset) (writes, error) {
	body, err := admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	families, err := metricFamilies(string(body))
	if err != nil {
		return nil, err
	}
	w := writes{}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		l := map[string]string{}
		for _, pair := range m.GetLabel() {
			l[pair.GetName()] = pair.GetValue()
		}
		switch l["verb"] {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
			resource := strings.TrimSuffix(l["resource"]+"/"+l["subresource"], "/")
			if resource != "leases" && resource != "nodes/status" && resource != "" {
				w[l["verb"]+" "+resource] += m.GetCounter().GetValue()
			}
		}
	}
	return w, nil
}

// metricFamilies reads metrics in Prometheus's text format.
func metricFamilies(text string) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parsing metrics: %w", err)
	}
	return families, nil
}

// quietWrites returns the counters when they were constant for settle.
func quietWrites(ctx context.Context, admin *kubernetes.Clientset) (last writes, err error) {
	err = wait.Until(ctx, patience, "the API server to be quiet", func(ctx context.Context) error {
		now, err := readWrites(ctx, admin)
		still := err == nil && maps.Equal(now, last)
		if last = now; !still {
			load.Sleep(ctx, settle)
		}
		return wait.If(still, err)
	})
	return last, err
}

// cost claims the whole stock, releases it, and counts the writes: Atoll's, and those that it causes.
func (b *bench) cost(ctx context.Context, add func(...result)) error {
	s, err := b.atStock(ctx)
	if err != nil {
		return err
	}
	claims := s.hubArm(false, s.open(promisedRate))
	if err := claims.reset(ctx); err != nil {
		return err
	}
	before, err := quietWrites(ctx, s.admin)
	if err != nil {
		return err
	}
	l, err := claims.run(ctx, 1)
	if err != nil {
		return err
	}
	answered, err := readWrites(ctx, s.admin)
	if err != nil {
		return err
	}
	claimed, err := quietWrites(ctx, s.admin)
	if err != nil {
		return err
	}
	n := float64(len(s.given.ids))
	if err := s.releaseAll(ctx); err != nil {
		return err
	}
	released, err := quietWrites(ctx, s.admin)
	if err != nil {
		return err
	}
	per := func(name string, from, to writes, verb string) result {
		r := count(name, "1/claim", (to[verb]-from[verb])/n, int(n))
		r.Errors = l.Failed
		return r
	}
	total := func(w writes) writes { return writes{"": sum(w)} }
	add(per("Pod writes between create and response", before, answered, patchPods).exactly(1),
		per("API writes a claim", total(before), total(claimed), "").atMost(mostWritesClaim),
		per("API writes a claim and its release, until the Pod is idle again", total(before), total(released), "").atMost(mostWritesCycle))
	add(per("PATCHes of Pods a claim and its release", before, released, patchPods).atMost(mostPatches))
	for _, verb := range slices.Sorted(maps.Keys(released)) {
		if r := per("of these: "+verb, before, released, verb); r.Value > 0 {
			add(r)
		}
	}
	// The pool's Pods are new ones now.
	s.pool, err = s.list(ctx, namespace)
	return err
}
