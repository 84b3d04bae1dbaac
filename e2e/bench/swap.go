// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/load"
)

const (
	swapRate  = 5.0 // a second
	mostSwap  = 1.2 // as a multiple of the raw swap
	swapImage = "registry.example/bench:%d"
)

// swap compares claims of another image, which return when its container runs and is ready, with patching such a Pod's image
// and watching for the same. Both wait for the same kubelet.
func (b *bench) swap(ctx context.Context, add func(...result)) error {
	s, err := b.atStock(ctx)
	if err != nil {
		return err
	}
	send := func(do load.Operation) func(context.Context, uint64) load.Result {
		return func(ctx context.Context, seed uint64) load.Result {
			return load.Open(ctx, b.size.swaps, swapRate, seed, do)
		}
	}
	image := 1 // of the raw Pods, alternating
	raw := loaded("raw swap", func(context.Context) error { image = 3 - image; return nil },
		send(func(ctx context.Context, i int) error {
			return s.rawSwap(ctx, s.raw[i].Name, fmt.Sprintf(swapImage, image))
		}))
	hub := loaded("claim with another image", s.releaseAll, send(func(ctx context.Context, _ int) error {
		return s.claim(ctx, &sandboxv1.CreateSandboxRequest{Image: fmt.Sprintf(swapImage, 2)})
	}))
	legs, err := b.interleave(ctx, "swap", b.size.pairs, raw, hub)
	if err != nil {
		return err
	}
	add(compare("claim p50, with another image", "ms", quantile(0.5), legs[1], legs[0]).atMost(mostSwap))
	return s.releaseAll(ctx)
}

func (s *stock) rawSwap(ctx context.Context, name, image string) error {
	pods := s.worker.CoreV1().Pods(rawNamespace)
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	before := pod.Status.ContainerStatuses[0].ContainerID
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": pod.UID},
		{"op": "replace", "path": "/spec/containers/0/image", "value": image},
	})
	if err != nil {
		return err
	}
	if _, err := pods.Patch(ctx, name, types.JSONPatchType, patch, asWorker()); err != nil {
		return err
	}
	return watchPods(ctx, pods, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), ResourceVersion: pod.ResourceVersion,
	}, func(now *corev1.Pod) bool {
		status := now.Status.ContainerStatuses[0]
		return ready(now) && status.Ready && status.ContainerID != before
	})
}

// releaseAll ends the claims of the last leg, and waits until the stock is complete again.
func (s *stock) releaseAll(ctx context.Context) error {
	for _, id := range s.given.ids {
		if err := s.hub.Release(ctx, id); err != nil {
			return err
		}
	}
	s.given.next()
	return s.waitReady(ctx)
}
