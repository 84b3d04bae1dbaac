// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/pkg/problem"
)

// sender is how the requests of a leg are sent.
type sender func(ctx context.Context, seed uint64, do load.Operation) load.Result

// rawArm patches Pods directly, as a claim does: with its content, which ends the Pod's managed fields, its encoding and its
// credentials.
func (s *stock) rawArm(send sender) arm {
	bodies := make([][]byte, len(s.raw))
	for i, pod := range s.raw {
		bodies[i] = rawPatch(pod, i)
	}
	do := func(ctx context.Context, i int) error {
		_, err := s.worker.CoreV1().Pods(rawNamespace).Patch(ctx, s.raw[i].Name, types.JSONPatchType, bodies[i], asWorker())
		return err
	}
	return loaded("raw", func(ctx context.Context) error { return s.reset(ctx, s.raw) },
		func(ctx context.Context, seed uint64) load.Result { return send(ctx, seed, do) })
}

func rawPatch(pod corev1.Pod, i int) []byte {
	const labels, annotations = "/metadata/labels/", "/metadata/annotations/"
	escape := strings.NewReplacer("~", "~0", "/", "~1").Replace
	op := func(verb, path string, value any) map[string]any {
		return map[string]any{"op": verb, "path": path, "value": value}
	}
	label := func(key, value string) map[string]any { return op("add", labels+escape(key), value) }
	annotation := func(key, value string) map[string]any { return op("add", annotations+escape(key), value) }
	id := fmt.Sprintf("01j9zq3p3k5m8x7c2v4b6n%04d-bench", i)
	body, err := json.Marshal([]map[string]any{
		op("test", "/metadata/uid", pod.UID),
		op("test", labels+escape(v1alpha1.SandboxPhaseLabelKey), v1alpha1.SandboxPhaseIdle),
		op("test", "/metadata/deletionTimestamp", nil),
		op("add", "/metadata/managedFields", []map[string]any{{}}),
		label(v1alpha1.SandboxPhaseLabelKey, v1alpha1.SandboxPhaseRunning),
		label(v1alpha1.SandboxIDLabelKey, id),
		annotation(v1alpha1.SandboxIDAnnotationKey, id),
		annotation(v1alpha1.SandboxClaimedAtAnnotationKey, "2026-01-01T00:00:00Z"),
		annotation(v1alpha1.SandboxStartedAtAnnotationKey, "2026-01-01T00:00:00Z"),
		annotation(v1alpha1.SandboxFirstActivityTimeoutAnnotationKey, "300"),
		annotation(v1alpha1.SandboxStartupTimeoutAnnotationKey, "120"),
		annotation(v1alpha1.SandboxContainerIDAnnotationKey, pod.Status.ContainerStatuses[0].ContainerID),
		annotation(v1alpha1.SandboxManagedLabelKeysAnnotationKey, ""),
		annotation(v1alpha1.SandboxManagedAnnotationKeysAnnotationKey, ""),
	})
	if err != nil {
		panic(err) // strings and maps always encode
	}
	return body
}

// given remembers which Pods were handed out, to find one that was handed out twice.
type given struct {
	mu      sync.Mutex
	legs    int
	holder  map[string]string // sandbox id of this leg by Pod uid
	ids     []string          // of this leg
	doubled int
}

func (g *given) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.legs, g.holder, g.ids = g.legs+1, map[string]string{}, nil
}

func (g *given) take(sandbox *sandboxv1.Sandbox) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if other, taken := g.holder[sandbox.GetPodUid()]; taken && other != sandbox.GetId() {
		g.doubled++
	}
	g.holder[sandbox.GetPodUid()] = sandbox.GetId()
	g.ids = append(g.ids, sandbox.GetId())
}

func (g *given) result() result {
	g.mu.Lock()
	defer g.mu.Unlock()
	return count("Pods returned for two claims", "Pods", float64(g.doubled), g.legs).exactly(0)
}

// claim takes a sandbox through the hub.
func (s *stock) claim(ctx context.Context, request *sandboxv1.CreateSandboxRequest) error {
	request.Namespace, request.Env = namespace, envName
	sandbox, err := s.hub.CreateSandbox(ctx, request)
	if err != nil {
		return fmt.Errorf("%s: %w", problem.FromError(err).Reason, err)
	}
	s.given.take(sandbox)
	if sandbox.GetPhase() != sandboxv1.Phase_RUNNING || request.GetImage() != "" && sandbox.GetImage() != request.GetImage() {
		return errors.New("it was returned before it ran")
	}
	return nil
}

// hubArm claims through the hub. With keys every claim has a new one.
func (s *stock) hubArm(keyed bool, send sender) arm {
	do := func(ctx context.Context, i int) error {
		request := &sandboxv1.CreateSandboxRequest{}
		if keyed {
			request.ClaimKey = fmt.Sprintf("bench-%d-%d", s.given.legs, i)
		}
		return s.claim(ctx, request)
	}
	return loaded(map[bool]string{false: "claim", true: "claim with a key"}[keyed], s.resetPool,
		func(ctx context.Context, seed uint64) load.Result { return send(ctx, seed, do) })
}

func (s *stock) resetPool(ctx context.Context) error {
	s.given.next()
	if err := s.reset(ctx, s.pool); err != nil {
		return err
	}
	return s.waitReady(ctx)
}

const ceilingConcurrency = 16

func (s *stock) closed(ctx context.Context, _ uint64, do load.Operation) load.Result {
	return load.Closed(ctx, s.size, ceilingConcurrency, do)
}

func (s *stock) open(rate float64) sender {
	return func(ctx context.Context, seed uint64, do load.Operation) load.Result {
		return load.Open(ctx, s.size, rate, seed, do)
	}
}

func (s *stock) burst(ctx context.Context, _ uint64, do load.Operation) load.Result {
	return load.Burst(ctx, s.size, do)
}

// ceiling finds how many claims, and how many raw patches, succeed a second.
func (b *bench) ceiling(ctx context.Context, add func(...result)) error {
	s, err := b.atStock(ctx)
	if err != nil {
		return err
	}
	legs, err := b.interleave(ctx, "ceiling", b.size.pairs, s.rawArm(s.closed), s.hubArm(false, s.closed))
	if err != nil {
		return err
	}
	s.peak = medianOf(each(legs[0], rate)).value
	add(compare("claim ceiling, beside a patch of the same content", "1/s", rate, legs[1], legs[0]).atLeast(0.8), s.given.result())
	add(cpuResults(legs[1], legs[0])...)
	return nil
}

// shares of the raw ceiling at which latency is measured, and the rate at which it is measured besides.
var shares = []float64{0.25, 0.5, 0.8}

const (
	keyedShare   = 0.5
	promisedRate = 100.0
)

// latency compares claims with raw patches at several rates, and in a burst.
func (b *bench) latency(ctx context.Context, add func(...result)) error {
	s, err := b.atStock(ctx)
	if err != nil {
		return err
	}
	if s.peak == 0 { // the ceiling was not asked for
		legs, err := b.interleave(ctx, "ceiling of raw patches", 3, s.rawArm(s.closed))
		if err != nil {
			return err
		}
		s.peak = medianOf(each(legs[0], rate)).value
	}
	type point struct {
		name  string
		rate  float64
		keyed bool
	}
	points := []point{{fmt.Sprintf("at %g/s", promisedRate), promisedRate, false}}
	for _, share := range shares {
		points = append(points, point{fmt.Sprintf("at %.0f%% of the raw ceiling (%.0f/s)", share*100, share*s.peak), share * s.peak, share == keyedShare})
	}
	for _, p := range points {
		arms := []arm{s.rawArm(s.open(p.rate)), s.hubArm(false, s.open(p.rate))}
		if p.keyed {
			arms = append(arms, s.hubArm(true, s.open(p.rate)))
		}
		legs, err := b.interleave(ctx, p.name, b.size.pairs, arms...)
		if err != nil {
			return err
		}
		achieved := measured("achieved rate, "+p.name, "1/s", each(legs[1], rate))
		achieved.Limit = ptr(p.rate)
		add(compare("claim p50, "+p.name, "ms", quantile(0.5), legs[1], legs[0]).atMost(1.5),
			compare("claim p99, "+p.name, "ms", quantile(0.99), legs[1], legs[0]).atMost(2), achieved)
		if p.keyed {
			add(compare("claim with a key p50, "+p.name, "ms", quantile(0.5), legs[2], legs[0]),
				compare("claim with a key p99, "+p.name, "ms", quantile(0.99), legs[2], legs[0]))
		}
	}
	legs, err := b.interleave(ctx, "burst", b.size.pairs, s.rawArm(s.burst), s.hubArm(false, s.burst))
	if err != nil {
		return err
	}
	add(compare(fmt.Sprintf("burst of %d claims, the last one", s.size), "ms", quantile(1), legs[1], legs[0]), s.given.result())
	return nil
}
