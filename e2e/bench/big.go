// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/watch"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/quiet"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	bigSpace = "quiet"
	// fillWriters is the concurrency of the raw arm's creates, equal to a pool's.
	fillWriters = 32
	// calm is how long Atoll must have written nothing before a rest is timed.
	calm = 15 * time.Second
	// mostIdleCPU limits hub and worker each at rest, in milliseconds a second: a fifth of a processor.
	mostIdleCPU = 200
	// fillAll is how many Pods a second fill the whole cluster, and podMemory the worker's memory for one of them, in KiB.
	fillAll, podMemory = 80, 4
	// mostWritesBusy are the Pod's, and the status of its pool and its Env where few claims share them.
	mostWritesBusy = 3
	// hotEnv is a pool that gets one in hotShare claims.
	hotEnv   = "hot"
	hotShare = 5
)

// ground is a cluster with many Envs and Pods, under an audit log.
type ground struct {
	quiet.Ground
	plane *plane.Plane
	atoll *stack.Stack
	admin *kubernetes.Clientset
	// filling is how long all Pods of all Envs took to be ready; 0: they were not created yet.
	filling time.Duration
}

// atGround returns the cluster, which runs until the group ends.
func (b *bench) atGround(ctx context.Context) (*ground, error) {
	if b.ground != nil {
		return b.ground, nil
	}
	p, atoll, err := b.newStack(ctx, plane.Options{AuditLog: true})
	if err != nil {
		return nil, err
	}
	kube, err := atoll.Kube(p.Name)
	if err != nil {
		return nil, err
	}
	g := &ground{Ground: quiet.Ground{Kube: kube, Cluster: p.Name, Namespace: bigSpace}, plane: p, atoll: atoll}
	if _, g.admin, err = kubeClients(p, atoll); err != nil {
		return nil, err
	}
	if err := g.Prepare(ctx); err != nil {
		return nil, err
	}
	b.ground = g
	return g, nil
}

// fill compares a new Env's pool with as many Pods that are created one by one. The same scheduler limits both, and both end
// when all Pods are Ready.
func (b *bench) fill(ctx context.Context, add func(...result)) error {
	g, err := b.atGround(ctx)
	if err != nil {
		return err
	}
	by := func(kind string, create func(ctx context.Context, name string) error, label string,
		remove func(ctx context.Context, name string) error) arm {
		return arm{name: kind, run: func(ctx context.Context, seed uint64) (leg, error) {
			name := fmt.Sprintf("%s-%d", kind, seed)
			began := time.Now()
			if err := create(ctx, name); err != nil {
				return leg{}, err
			}
			if err := g.podsReady(ctx, label+"="+name, b.size.fill); err != nil {
				return leg{}, err
			}
			took := time.Since(began)
			return leg{Result: load.Result{Took: took, Latencies: []time.Duration{took}}}, remove(ctx, name)
		}}
	}
	legs, err := b.interleave(ctx, "fill", b.size.pairs,
		by("raw", func(ctx context.Context, name string) error { return g.createPods(ctx, name, b.size.fill) }, "raw", g.deletePods),
		by("pool", func(ctx context.Context, name string) error { return g.CreateEnv(ctx, name, b.size.fill) }, v1alpha1.SandboxPoolLabelKey,
			g.DeleteEnv))
	if err != nil {
		return err
	}
	perSecond := func(l leg) float64 { return float64(b.size.fill) / l.Took.Seconds() }
	r := compare("pool fill, from the Env to the last Pod ready", "Pods/s", perSecond, legs[1], legs[0])
	add(r.atLeast(0.9))
	return nil
}

// createPods creates Pods like a pool's.
func (g *ground) createPods(ctx context.Context, name string, n int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(fillWriters)
	for i := range n {
		group.Go(func() error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), Labels: map[string]string{"raw": name}}}
			pod.Spec.AutomountServiceAccountToken = new(false)
			pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.example/quiet:1"}}
			_, err := g.admin.CoreV1().Pods(bigSpace).Create(groupCtx, pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("creating raw Pods: %w", err)
	}
	return nil
}

func (g *ground) deletePods(ctx context.Context, name string) error {
	pods, selector := g.admin.CoreV1().Pods(bigSpace), metav1.ListOptions{LabelSelector: "raw=" + name}
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, selector); err != nil {
		return fmt.Errorf("deleting raw Pods: %w", err)
	}
	return wait.Until(ctx, patience, "raw Pods to be gone", func(ctx context.Context) error {
		left, err := pods.List(ctx, selector)
		return wait.If(err == nil && len(left.Items) == 0, fmt.Sprint(len(left.Items), err))
	})
}

// podsReady is watchReady for a single pool, which patience bounds.
func (g *ground) podsReady(ctx context.Context, selector string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return g.watchReady(ctx, selector, n)
}

// watchReady watches the Pods with a label until n of them were ready. A watch costs both arms the same, and less than lists.
func (g *ground) watchReady(ctx context.Context, selector string, n int) error {
	seen := map[string]bool{}
	options := metav1.ListOptions{LabelSelector: selector, ResourceVersion: "0"} // begins with the existing Pods
	done := func(pod *corev1.Pod) bool {
		if ready(pod) {
			seen[pod.Name] = true
		}
		return len(seen) == n
	}
	err := watchPods(ctx, g.admin.CoreV1().Pods(bigSpace), options, done)
	for errors.Is(err, watch.ErrWatchClosed) && ctx.Err() == nil { // the API server closes a watch whose events pile up
		err = watchPods(ctx, g.admin.CoreV1().Pods(bigSpace), options, done)
	}
	if err != nil {
		return fmt.Errorf("%d of %d Pods were ready: %w", len(seen), n, err)
	}
	return nil
}

// fillUp creates all Envs and waits until Atoll writes nothing more.
func (b *bench) fillUp(ctx context.Context, g *ground) error {
	if g.filling > 0 {
		return nil
	}
	b.logf("filling %d Envs with %d Pods each", b.size.envs, b.size.pods)
	began, took := time.Now(), time.Duration(0)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.CreateEnvs(groupCtx, b.size.envs, b.size.pods) })
	group.Go(func() error {
		err := g.watchReady(groupCtx, v1alpha1.SandboxPoolLabelKey, b.size.envs*b.size.pods)
		took = time.Since(began)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	g.filling = took
	if err := g.Filled(ctx, b.size.envs, b.size.pods); err != nil {
		return err
	}
	return quiet.Settle(ctx, g.plane, calm, patience)
}

// rest fills the cluster, leaves it alone, and reports writes, processor time and memory.
func (b *bench) rest(ctx context.Context, add func(...result)) error {
	g, err := b.atGround(ctx)
	if err != nil {
		return err
	}
	empty, err := g.heapHeld(ctx, calm, calm/60)
	if err != nil {
		return err
	}
	if err := b.fillUp(ctx, g); err != nil {
		return err
	}
	n := b.size.envs * b.size.pods
	of := fmt.Sprintf("%d Envs, %d Pods", b.size.envs, n)
	add(measured("pools filled, until the last Pod is ready, "+of, "Pods/s", []float64{float64(n) / g.filling.Seconds()}).atLeast(fillAll))
	b.logf("filled after %.0f s; resting for %s", g.filling.Seconds(), b.size.idle)
	began := time.Now()
	before, err := readCPU()
	if err != nil {
		return err
	}
	full, err := g.heapHeld(ctx, b.size.idle, 10*time.Second)
	if err != nil {
		return err
	}
	after, err := readCPU()
	if err != nil {
		return err
	}
	wrote, others, err := quiet.Since(g.plane, began, time.Now())
	if err != nil {
		return err
	}
	b.logf("written at rest by Atoll: %v; by others: %v", wrote, others)
	add(count(fmt.Sprintf("writes in %s of rest, %s", b.size.idle, of), "writes", float64(wrote.Sum()), 1).exactly(0))
	for _, program := range []string{"atoll-worker", "atoll-hub"} {
		spent := after.since(before).ours[program] * 1000 / b.size.idle.Seconds()
		add(count("CPU of "+program+" at rest, "+of, "ms/s", spent, 1).atMost(mostIdleCPU))
	}
	add(measured("memory of the worker a Pod, with its share of pool and Env, "+of, "KiB", []float64{(full - empty) / float64(n) / 1024}).
		atMost(podMemory))
	return nil
}

// heapHeld returns the worker's smallest heap in that time; because it is collected occasionally, even at rest. Each look costs
// the worker processor time.
func (g *ground) heapHeld(ctx context.Context, within, every time.Duration) (float64, error) {
	least := math.Inf(1)
	for end := time.Now().Add(within); time.Now().Before(end); load.Sleep(ctx, min(every, time.Until(end))) {
		text, err := g.atoll.Metrics(ctx, clusterID)
		if err != nil {
			return 0, err
		}
		families, err := metricFamilies(text)
		if err != nil {
			return 0, err
		}
		for _, m := range families["go_memstats_heap_alloc_bytes"].GetMetric() {
			least = min(least, m.GetGauge().GetValue())
		}
	}
	return least, context.Cause(ctx)
}

// busy claims from the full cluster, from one pool more often than from the others.
func (b *bench) busy(ctx context.Context, add func(...result)) error {
	g, err := b.atGround(ctx)
	if err != nil {
		return err
	}
	hub, err := g.atoll.HubClient()
	if err != nil {
		return err
	}
	n := int(promisedRate * b.size.busy.Seconds())
	if err := g.CreateEnv(ctx, hotEnv, n/hotShare); err != nil {
		return err
	}
	if err := g.podsReady(ctx, v1alpha1.SandboxPoolLabelKey+"="+hotEnv, n/hotShare); err != nil {
		return err
	}
	if err := b.fillUp(ctx, g); err != nil {
		return err
	}
	if err := quiet.Settle(ctx, g.plane, calm/3, patience); err != nil {
		return err
	}
	began := time.Now()
	l, err := loaded("claims", nil, func(ctx context.Context, seed uint64) load.Result {
		return load.Open(ctx, n, promisedRate, seed, func(ctx context.Context, i int) error {
			env := quiet.EnvName(i % b.size.envs)
			if i%hotShare == 0 {
				env = hotEnv
			}
			_, err := hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Namespace: bigSpace, Env: env})
			return err
		})
	}).leg(ctx, 1)
	if err != nil {
		return err
	}
	if l.Failed > 0 {
		b.logf("%d of %d claims failed, the first with: %v", l.Failed, n, l.Err)
	}
	end := time.Now()
	if err := quiet.Settle(ctx, g.plane, calm/3, patience); err != nil {
		return err
	}
	most, _, err := quiet.BusiestSecond(g.plane, "sandboxpools", bigSpace, hotEnv, began, end)
	if err != nil {
		return err
	}
	wrote, _, err := quiet.Since(g.plane, began, time.Now())
	if err != nil {
		return err
	}
	legs := []leg{l}
	of := fmt.Sprintf(" at %g/s, %d Envs, %d Pods", promisedRate, b.size.envs, b.size.envs*b.size.pods)
	add(latency("claim p50"+of, 0.5, legs), latency("claim p99"+of, 0.99, legs),
		measured("achieved rate", "1/s", each(legs, rate)),
		count("API writes of Atoll's a claim"+of, "1/claim", float64(wrote.Sum())/float64(n), n).atMost(mostWritesBusy),
		count("writes of a busy pool's status, busiest second", "writes", float64(most), 1).atMost(2))
	b.logf("written for claims by Atoll: %v", wrote)
	return nil
}
