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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// The API writes that a claim may cause if many claims share a pool's status; and with its release, which replaces the Pod:
// Atoll's, the scheduler's and the kubelet's.
const (
	mostWritesClaim = 1.5
	mostWritesCycle = 14
	// mostPatches are the claim, and the removal of the finalizer once the sandbox has its record; the release is a DELETE.
	mostPatches = 2.05
	// Of a Pod that is reset in place: the claim, its start, the release with the pool's image, and the return to idle; and the kubelet's
	// status after each change of the image.
	mostPatchesReset, mostWritesReset = 4.05, 10
)

// settle is longer than a claim's later writes take.
const settle = 4 * time.Second

// patchPods is the write of a claim, allWrites stands for those of every kind.
const (
	patchPods = "PATCH pods"
	allWrites = ""
)

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

// counted are the API server's counters before, during and after cycles.
type counted struct {
	cycles, failed                      int
	before, answered, claimed, released writes
	cpu                                 float64 // of everything together, in milliseconds a cycle
}

// cost counts the writes of cycles: Atoll's, and those that it causes. Released Pods are replaced; then, in an Env whose Pods can keep
// nothing of a tenant, ones whose claim changed the image are reset in place.
func (b *bench) cost(ctx context.Context, add func(...result)) error {
	s, err := b.atStock(ctx)
	if err != nil {
		return err
	}
	if err := s.resetPool(ctx); err != nil {
		return err
	}
	c, err := s.countCycles(ctx, "")
	if err != nil {
		return err
	}
	add(c.per("Pod writes between create and response", c.before, c.answered, patchPods).exactly(1),
		c.per("API writes a claim", c.before, c.claimed, allWrites).atMost(mostWritesClaim),
		c.per("API writes a claim and its release, until the Pod is idle again", c.before, c.released, allWrites).atMost(mostWritesCycle),
		c.per("PATCHes of Pods a claim and its release", c.before, c.released, patchPods).atMost(mostPatches),
		measured("CPU of these and the pauses between, everything together", "ms/claim", []float64{c.cpu}))
	add(c.byVerb()...)
	// The pool's Pods are new ones now.
	if s.pool, err = s.list(ctx, namespace); err != nil {
		return err
	}
	if s, err = s.inPlace(ctx); err != nil {
		return err
	}
	if c, err = s.countCycles(ctx, fmt.Sprintf(swapImage, 2)); err != nil {
		return err
	}
	add(c.per("reset in place, with another image: API writes", c.before, c.released, allWrites).atMost(mostWritesReset),
		c.per("reset in place: PATCHes of Pods", c.before, c.released, patchPods).atMost(mostPatchesReset),
		c.per("reset in place: Pods that were replaced", c.before, c.released, "DELETE pods").exactly(0),
		measured("reset in place: CPU, with the pauses between, everything together", "ms/claim", []float64{c.cpu}))
	add(c.byVerb()...)
	return s.each(func(at *shelf) error {
		_, err := at.plane.Kubectl(ctx, "delete", "namespace", s.space, "--wait")
		return err
	})
}

// inPlace is a stock of as many Pods that can keep nothing of a tenant.
func (s *stock) inPlace(ctx context.Context) (*stock, error) {
	in := &stock{shelf: s.shelf, shelves: s.shelves, pods: s.pods, hub: s.hub, space: "in-place"}
	env := envOf(s.shelves...)
	env.Namespace, env.Pod = in.space, []func(*corev1.PodSpec){stack.ClosedPod}
	err := s.each(func(at *shelf) error {
		if _, err := at.plane.Kubectl(ctx, "create", "namespace", in.space); err != nil {
			return err
		}
		return env.Apply(ctx, at.plane)
	})
	return in, err
}

// countCycles claims the whole stock, at promisedRate and with another image if one is named, and releases it.
func (s *stock) countCycles(ctx context.Context, image string) (c counted, err error) {
	s.given.next()
	if err := s.waitReady(ctx); err != nil {
		return c, err
	}
	if c.before, err = quietWrites(ctx, s.admin); err != nil {
		return c, err
	}
	l, err := arm{name: "cycles", run: func(ctx context.Context, seed uint64) (leg, error) {
		l := leg{Result: load.Open(ctx, s.pods, promisedRate, seed, func(ctx context.Context, _ int) error {
			return s.claim(ctx, &sandboxv1.CreateSandboxRequest{Image: image})
		})}
		var err error
		if c.answered, err = readWrites(ctx, s.admin); err != nil {
			return l, err
		}
		if c.claimed, err = quietWrites(ctx, s.admin); err != nil {
			return l, err
		}
		if err := s.releaseAll(ctx); err != nil {
			return l, err
		}
		c.released, err = quietWrites(ctx, s.admin)
		return l, err
	}}.leg(ctx, 1)
	c.cycles, c.failed, c.cpu = s.pods-l.Failed, l.Failed, sum(perRequest(l))
	if err == nil && c.cycles == 0 {
		err = fmt.Errorf("no claim succeeded: %w", l.Err)
	}
	return c, err
}

// per is the number of some writes, or of allWrites, for each cycle.
func (c counted) per(name string, from, to writes, verb string) result {
	n := to[verb] - from[verb]
	if verb == allWrites {
		n = sum(to) - sum(from)
	}
	r := count(name, "1/claim", n/float64(c.cycles), c.cycles)
	r.Errors = c.failed
	return r
}

// byVerb are the writes until the release.
func (c counted) byVerb() (out []result) {
	for _, verb := range slices.Sorted(maps.Keys(c.released)) {
		if r := c.per("of these: "+verb, c.before, c.released, verb); r.Value > 0 {
			out = append(out, r)
		}
	}
	return out
}
