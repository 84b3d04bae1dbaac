// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

const (
	swaps     = 10 // of a leg, one after the other
	swapImage = "registry.example/bench:%d"
)

// swapped compares claims of another image, answered when its container runs and is ready, with patching the image of such
// a Pod and watching for the same. Both wait for the same kubelet.
func (s *stock) swapped(ctx context.Context, b *holdings) ([]result, error) {
	raw := &rawSwap{stock: s}
	hub := &hubSwap{stock: s, holdings: b}
	c := comparison{
		raw: arm{name: "raw swap", do: raw.do, reset: raw.reset}, hub: arm{name: "hub, with another image", do: hub.do, reset: hub.reset}, log: os.Stdout,
	}
	pairs, err := c.pairs(ctx, "swap", func(ctx context.Context, a arm, _ uint64) leg { return oneByOne(ctx, swaps, a.do) })
	if err != nil {
		return nil, err
	}
	rawLegs, hubLegs := pool(pairs)
	ratio, _ := ratioOf(pairs, 0.5)
	claim := result{
		Name: "claim p50, with another image", Value: millis(quantile(hubLegs.latencies, 0.5)), Unit: "ms",
		Limit: ptr(millis(quantile(rawLegs.latencies, 0.5))), Ratio: ptr(round(ratio)),
	}
	return []result{claim.withLatencies(hubLegs.latencies, hubLegs.errors)}, hub.reset(ctx)
}

func oneByOne(ctx context.Context, n int, do operation) leg {
	latencies, failed := make([]time.Duration, n), make([]bool, n)
	begin := time.Now()
	for i := range n {
		opCtx, cancel := context.WithTimeout(ctx, operationTimeout)
		start := time.Now()
		failed[i] = do(opCtx, i) != nil
		latencies[i] = time.Since(start)
		cancel()
	}
	return collect(latencies, failed, time.Since(begin))
}

// rawSwap swaps the images of the first raw Pods to and fro.
type rawSwap struct {
	stock *stock
	legs  int
}

func (r *rawSwap) reset(context.Context) error {
	r.legs++
	return nil
}

func (r *rawSwap) do(ctx context.Context, i int) (err error) {
	pods := r.stock.kube.CoreV1().Pods(rawNamespace)
	name := r.stock.raw[i].Name
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	before := pod.Status.ContainerStatuses[0].ContainerID
	events, err := pods.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), ResourceVersion: pod.ResourceVersion,
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": pod.UID},
		{"op": "replace", "path": "/spec/containers/0/image", "value": fmt.Sprintf(swapImage, 2+r.legs%2)},
	})
	if err != nil {
		return err
	}
	if _, err := pods.Patch(ctx, name, types.JSONPatchType, patch, asWorker()); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-events.ResultChan():
			if !ok {
				return errors.New("the watch ended")
			}
			now, ok := event.Object.(*corev1.Pod)
			if ok && ready(*now) && now.Status.ContainerStatuses[0].ContainerID != before && now.Status.ContainerStatuses[0].Ready {
				return nil
			}
		}
	}
}

// hubSwap claims with another image, and releases what a leg has claimed before the next one.
type hubSwap struct {
	stock    *stock
	holdings *holdings
	claimed  []string
}

func (h *hubSwap) do(ctx context.Context, _ int) error {
	request := &sandboxv1.CreateSandboxRequest{Namespace: namespace, Env: envName, Image: fmt.Sprintf(swapImage, 2)}
	sandbox, err := h.stock.hub.CreateSandbox(ctx, request)
	if err != nil {
		return h.holdings.fail(err)
	}
	h.claimed = append(h.claimed, sandbox.GetId())
	if sandbox.GetPhase() != sandboxv1.Phase_RUNNING || sandbox.GetImage() != request.GetImage() {
		return h.holdings.fail(errors.New("answered before it ran"))
	}
	return nil
}

func (h *hubSwap) reset(ctx context.Context) error {
	for _, id := range h.claimed {
		if _, err := h.stock.hub.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: id}); err != nil {
			return fmt.Errorf("releasing %s: %w", id, err)
		}
	}
	h.claimed = nil
	return h.stock.waitReady(ctx)
}
