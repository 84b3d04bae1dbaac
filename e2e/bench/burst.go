// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
)

// lastOfBurst limits the last response of a burst, as a multiple of the last raw patch of as many Pods in the same clusters.
const lastOfBurst = 1.2

// bursts claims every idle Pod of three clusters at once.
func (b *bench) bursts(ctx context.Context, add func(...result)) error {
	planes, atoll, err := b.newStackIn(ctx, plane.Options{}, stack.Options{}, clusterID, clusterID+"-2", clusterID+"-3")
	if err != nil {
		return err
	}
	s, err := b.newStock(ctx, atoll, b.size.burst, planes...)
	if err != nil {
		return err
	}
	legs, err := b.interleave(ctx, "burst", b.size.pairs, s.rawArm(s.burst), s.hubArm(false, s.burst))
	if err != nil {
		return err
	}
	of := fmt.Sprintf("burst of %d claims on as many Pods in %d clusters, ", s.pods, len(planes))
	add(compare(of+"the last one", "ms", quantile(1), legs[1], legs[0]).atMost(lastOfBurst),
		compare(of+"p50", "ms", quantile(0.5), legs[1], legs[0]), s.given.result(),
		count("Pods that were given up, because their claims went to another cluster", "Pods", float64(s.replaced()), b.size.pairs))
	add(cpuResults(legs[1], legs[0])...)
	return nil
}
