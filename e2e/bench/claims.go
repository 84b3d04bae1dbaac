// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/pkg/problem"
)

// sender sends the requests of a leg.
type sender func(ctx context.Context, seed uint64, do load.Operation) load.Result

// rawArm patches Pods directly, as a claim does: the same content, which ends the Pod's managed fields, the same encoding and
// the same credentials.
func (s *stock) rawArm(send sender) arm {
	do := func(ctx context.Context, i int) error {
		at := s.shelves[i%len(s.shelves)]
		i /= len(s.shelves)
		_, err := at.worker.CoreV1().Pods(rawNamespace).Patch(ctx, at.raw[i].Name, types.JSONPatchType, at.bodies[i], asWorker())
		return err
	}
	reset := func(ctx context.Context) error {
		return s.resetArm(ctx, func(at *shelf) []corev1.Pod { return at.raw })
	}
	return loaded("raw", reset, func(ctx context.Context, seed uint64) load.Result { return send(ctx, seed, do) })
}

// learn makes a claim, and prepares patches of the raw Pods with the same content.
func (s *stock) learn(ctx context.Context) error {
	s.given.next()
	if err := s.claim(ctx, &sandboxv1.CreateSandboxRequest{}); err != nil {
		return fmt.Errorf("claiming a sandbox: %w", err)
	}
	was, is, err := s.claimed(ctx)
	if err != nil {
		return err
	}
	content := slices.Concat(added("labels", was.Labels, is.Labels), added("annotations", was.Annotations, is.Annotations))
	for _, at := range s.shelves {
		for _, pod := range at.raw {
			body, err := json.Marshal(append([]patchOp{
				{"test", "/metadata/uid", pod.UID},
				{"test", pathOf("labels", v1alpha1.SandboxPhaseLabelKey), v1alpha1.SandboxPhaseIdle},
				{"test", "/metadata/deletionTimestamp", nil},
				{"test", "/spec/containers/0/image", pod.Spec.Containers[0].Image},
				{"add", "/metadata/managedFields", []map[string]any{{}}},
			}, content...))
			if err != nil {
				return fmt.Errorf("encoding a patch: %w", err)
			}
			at.bodies = append(at.bodies, body)
		}
	}
	return s.resetPool(ctx)
}

// claimed finds a claimed Pod of the stock, as it was and as it is.
func (s *stock) claimed(ctx context.Context) (was, is corev1.Pod, err error) {
	for _, at := range s.shelves {
		now, err := at.list(ctx, namespace)
		if err != nil {
			return was, is, err
		}
		for _, is = range now {
			i := slices.IndexFunc(at.pool, func(p corev1.Pod) bool { return p.UID == is.UID })
			if i >= 0 && is.Labels[v1alpha1.SandboxPhaseLabelKey] != v1alpha1.SandboxPhaseIdle {
				return at.pool[i], is, nil
			}
		}
	}
	return was, is, errors.New("no Pod of the stock is claimed")
}

type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func pathOf(parent, key string) string {
	return "/metadata/" + parent + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// added are the operations that write a map's new entries.
func added(parent string, was, is map[string]string) (ops []patchOp) {
	for key, value := range is {
		if before, ok := was[key]; !ok || before != value {
			ops = append(ops, patchOp{"add", pathOf(parent, key), value})
		}
	}
	return ops
}

// given records the Pods that were handed out, to find double assignments.
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
	return s.claimAt(ctx, s.hub, request)
}

// claimAt takes a sandbox at one replica of the hub.
func (s *stock) claimAt(ctx context.Context, hub *stack.Client, request *sandboxv1.CreateSandboxRequest) error {
	request.Namespace, request.Env = s.space, envName
	sandbox, err := hub.CreateSandbox(ctx, request)
	if err != nil {
		return fmt.Errorf("%s: %w", problem.FromError(err).Reason, err)
	}
	s.given.take(sandbox)
	if sandbox.GetPhase() != sandboxv1.Phase_RUNNING || request.GetImage() != "" && sandbox.GetImage() != request.GetImage() {
		return errors.New("it was returned before it ran")
	}
	return nil
}

// hubArm claims through the hub. With keyed, every claim has a new key.
func (s *stock) hubArm(keyed bool, send sender) arm {
	return s.claimArm(keyed, send, func(int) *stack.Client { return s.hub })
}

// claimArm is hubArm at the replica of the hub that at names for each claim.
func (s *stock) claimArm(keyed bool, send sender, at func(i int) *stack.Client) arm {
	do := func(ctx context.Context, i int) error {
		request := &sandboxv1.CreateSandboxRequest{}
		if keyed {
			request.ClaimKey = fmt.Sprintf("bench-%d-%d", s.given.legs, i)
		}
		return s.claimAt(ctx, at(i), request)
	}
	return loaded(kindOfClaim(keyed), s.resetPool, func(ctx context.Context, seed uint64) load.Result { return send(ctx, seed, do) })
}

func kindOfClaim(keyed bool) string {
	return map[bool]string{false: "claim", true: "claim with a key"}[keyed]
}

func (s *stock) resetPool(ctx context.Context) error {
	s.given.next()
	if err := s.resetArm(ctx, func(at *shelf) []corev1.Pod { return at.pool }); err != nil {
		return err
	}
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	return s.each(func(at *shelf) (err error) {
		at.pool, err = at.list(ctx, s.space) // some may be new
		return err
	})
}

// resetArm makes the Pods of an arm idle again, and lets every watcher process that.
func (s *stock) resetArm(ctx context.Context, arm func(*shelf) []corev1.Pod) error {
	if err := s.each(func(at *shelf) error { return at.reset(ctx, arm(at)) }); err != nil {
		return err
	}
	load.Sleep(ctx, rest)
	return nil
}

const ceilingConcurrency = 16

func (s *stock) closed(ctx context.Context, _ uint64, do load.Operation) load.Result {
	return load.Closed(ctx, s.pods, ceilingConcurrency, do)
}

func (s *stock) open(rate float64) sender {
	return func(ctx context.Context, seed uint64, do load.Operation) load.Result {
		return load.Open(ctx, s.pods, rate, seed, do)
	}
}

func (s *stock) burst(ctx context.Context, _ uint64, do load.Operation) load.Result {
	return load.Burst(ctx, s.pods, do)
}

// ceiling measures how many claims, and how many raw patches, succeed a second.
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

// shares of the raw ceiling at which latency is measured, and an additional fixed rate.
var shares = []float64{0.25, 0.5, 0.8}

// mostP50, mostP99 and mostKeyed, at the median, limit a claim's latency as a multiple of a raw patch's.
const mostP50, mostP99, mostKeyed = 1.25, 1.5, 1.35

const (
	keyedShare   = 0.5
	promisedRate = 100.0
)

// latency compares claims with raw patches at several rates.
func (b *bench) latency(ctx context.Context, add func(...result)) error {
	s, err := b.atStock(ctx)
	if err != nil {
		return err
	}
	if s.peak == 0 { // the ceiling was not selected
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
		points = append(points, point{fmt.Sprintf("at %.0f%% of the raw ceiling (%.0f/s)", share*100, share*s.peak), share * s.peak,
			share == keyedShare})
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
		add(compare("claim p50, "+p.name, "ms", quantile(0.5), legs[1], legs[0]).atMost(mostP50),
			compare("claim p99, "+p.name, "ms", quantile(0.99), legs[1], legs[0]).atMost(mostP99), achieved)
		if p.keyed {
			add(compare("claim with a key p50, "+p.name, "ms", quantile(0.5), legs[2], legs[0]).atMost(mostKeyed),
				compare("claim with a key p99, "+p.name, "ms", quantile(0.99), legs[2], legs[0]))
		}
	}
	add(s.given.result())
	return nil
}
