// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/quiet"
	"navix.sh/atoll/e2e/stack"
)

// size of what is big.
type size struct {
	envs, pods int           // Pods of each Env
	idle       time.Duration // for so long nothing may be written
}

const (
	bigSpace = "quiet"
	// Of the comparison of fills: Pods of a leg, pairs of legs, and writers of the raw arm, as many as a pool has.
	fillPods    = 300
	fillPairs   = 6
	fillWriters = 32
)

// big measures one worker in a cluster with many Envs and Pods: how fast a pool is filled, what is written at rest, and what
// a Pod takes in memory.
func big(ctx context.Context, binDir, outDir string, s size) ([]result, error) {
	audit := plane.Options{AuditLog: true}
	return onOnePlane(ctx, binDir, filepath.Join(outDir, "logs-big"), audit, func(p *plane.Plane, atoll *stack.Stack) ([]result, error) {
		kube, err := atoll.Kube(p.Name)
		if err != nil {
			return nil, err
		}
		ground := quiet.Ground{Kube: kube, Cluster: p.Name, Namespace: bigSpace}
		if err := ground.Prepare(ctx); err != nil {
			return nil, err
		}
		results, err := fills(ctx, p, ground)
		if err != nil {
			return nil, err
		}
		more, err := atRest(ctx, p, atoll, ground, s)
		return append(results, more...), err
	})
}

// fills compares a pool of an Env that was just made with as many Pods that are made one by one: both are bound by the same
// scheduler, and both are there when all Pods are Ready.
func fills(ctx context.Context, p *plane.Plane, ground quiet.Ground) ([]result, error) {
	config := p.Config()
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	raw := func(i int) (float64, error) { return rawFill(ctx, kube, fmt.Sprintf("raw-%d", i)) }
	pool := func(i int) (float64, error) {
		name := fmt.Sprintf("fill-%d", i)
		begin := time.Now()
		if err := ground.CreateEnv(ctx, name, fillPods); err != nil {
			return 0, err
		}
		if err := podsReady(ctx, kube, v1alpha1.SandboxPoolLabelKey+"="+name); err != nil {
			return 0, err
		}
		rate := fillPods / time.Since(begin).Seconds()
		return rate, ground.DeleteEnv(ctx, name)
	}
	var ratios, raws, pools []float64
	for i := range fillPairs {
		first, second := raw, pool
		if i%2 == 1 {
			first, second = pool, raw
		}
		a, err := first(i)
		if err != nil {
			return nil, err
		}
		b, err := second(i)
		if err != nil {
			return nil, err
		}
		if i%2 == 1 {
			a, b = b, a
		}
		fmt.Printf("  fill %d: raw %.0f/s, pool %.0f/s\n", i, a, b)
		raws, pools, ratios = append(raws, a), append(pools, b), append(ratios, b/a)
	}
	ratio, bounds := medianWithInterval(ratios)
	return []result{result{Name: "pool fill, from the Env to the last Pod ready", Value: round(median(pools)), Unit: "Pods/s", Samples: fillPairs}.
		against(median(raws), ratio, bounds, 0.6, false)}, nil
}

// rawFill makes Pods like a pool's.
func rawFill(ctx context.Context, kube *kubernetes.Clientset, name string) (rate float64, err error) {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(fillWriters)
	begin := time.Now()
	for i := range fillPods {
		group.Go(func() error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), Labels: map[string]string{"raw": name}}}
			pod.Spec.AutomountServiceAccountToken = new(false)
			pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.example/quiet:1"}}
			_, err := kube.CoreV1().Pods(bigSpace).Create(groupCtx, pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("creating raw Pods: %w", err)
	}
	if err := podsReady(ctx, kube, "raw="+name); err != nil {
		return 0, err
	}
	rate = fillPods / time.Since(begin).Seconds()
	err = kube.CoreV1().Pods(bigSpace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "raw=" + name})
	if err != nil {
		return 0, fmt.Errorf("deleting raw Pods: %w", err)
	}
	return rate, poll(ctx, "raw Pods to be gone", func(ctx context.Context) (bool, error) {
		pods, err := kube.CoreV1().Pods(bigSpace).List(ctx, metav1.ListOptions{LabelSelector: "raw=" + name, Limit: 1})
		return err == nil && len(pods.Items) == 0, err
	})
}

// podsReady follows the Pods with a label until as many as a leg has were ready. It watches, which costs both arms the same
// and less than listing.
func podsReady(ctx context.Context, kube *kubernetes.Clientset, selector string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	seen := map[string]bool{}
	for ctx.Err() == nil {
		// It begins with what there is, and an API server may end it when it likes.
		watch, err := kube.CoreV1().Pods(bigSpace).Watch(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: "0"})
		if err != nil {
			return fmt.Errorf("watching Pods: %w", err)
		}
		for event := range watch.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && ready(*pod) {
				seen[pod.Name] = true
			}
			if len(seen) == fillPods {
				watch.Stop()
				return nil
			}
		}
	}
	return fmt.Errorf("watching Pods: %d of %d were ready: %w", len(seen), fillPods, context.Cause(ctx))
}

// atRest fills the cluster, leaves it alone, and says what was written and what is held.
func atRest(ctx context.Context, p *plane.Plane, atoll *stack.Stack, ground quiet.Ground, s size) ([]result, error) {
	empty, err := heapHeld(ctx, atoll, p.Name, 15*time.Second)
	if err != nil {
		return nil, err
	}
	n := s.envs * s.pods
	fmt.Printf("  filling %d Envs with %d Pods each\n", s.envs, s.pods)
	begin := time.Now()
	if err := ground.Fill(ctx, s.envs, s.pods); err != nil {
		return nil, err
	}
	took := time.Since(begin).Seconds()
	fmt.Printf("  filled after %.0f s; resting for %s\n", took, s.idle)
	if err := quiet.Settle(ctx, p, 15*time.Second, 10*time.Minute); err != nil {
		return nil, err
	}
	begin = time.Now()
	full, err := heapHeld(ctx, atoll, p.Name, s.idle)
	if err != nil {
		return nil, err
	}
	wrote, others, err := quiet.Since(p, begin, time.Now())
	if err != nil {
		return nil, err
	}
	fmt.Printf("  written at rest by Atoll: %v; by others: %v\n", wrote, others)
	of := fmt.Sprintf("%d Envs, %d Pods", s.envs, n)
	return []result{
		result{Name: fmt.Sprintf("writes in %s of rest, %s", s.idle, of), Value: float64(wrote.Sum()), Unit: "writes", Samples: 1}.exactly(0),
		{Name: "fill of " + of, Value: round(float64(n) / took), Unit: "Pods/s", Samples: 1},
		{Name: "memory of the worker a Pod, with its share of pool and Env, " + of, Value: round((full - empty) / float64(n) / 1024), Unit: "KiB", Samples: 1},
	}, nil
}

// heapHeld is the least that the worker's heap has had in that time: it is collected now and then, also at rest.
func heapHeld(ctx context.Context, atoll *stack.Stack, cluster string, within time.Duration) (float64, error) {
	least := math.Inf(1)
	end := time.NewTimer(within)
	defer end.Stop()
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		text, err := atoll.Metrics(ctx, cluster)
		if err != nil {
			return 0, err
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			return 0, fmt.Errorf("parsing the worker's metrics: %w", err)
		}
		for _, m := range families["go_memstats_heap_alloc_bytes"].GetMetric() {
			least = min(least, m.GetGauge().GetValue())
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-end.C:
			return least, nil
		case <-ticker.C:
		}
	}
}
