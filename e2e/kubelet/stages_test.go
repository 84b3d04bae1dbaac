// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// sampleSize is how often each thing is measured.
const sampleSize = 5

// Measures the stages of a claim with a swap, a reset and a replacement. It has no limits.
func TestStages(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, resets, "stages", sampleSize, closed)
	seen := watchPods(ctx, t, e)
	before := programTimes(ctx, t)
	for _, of := range []string{"claim with swap of a new Pod", "claim with swap of one that was reset"} {
		var sandboxes []*sandboxv1.Sandbox
		for range sampleSize {
			begin := time.Now()
			sandbox := e.mustClaim(ctx, t, tenantImage)
			answered := time.Now()
			figures.add(of+": call to answer", answered.Sub(begin))
			claimStages(ctx, t, seen, of, sandbox, answered)
			sandboxes = append(sandboxes, sandbox)
		}
		for _, sandbox := range sandboxes {
			begin := time.Now()
			release(ctx, t, sandbox)
			figures.add("recycle: release to idle again", seen.first(ctx, t, sandbox.GetPod(), e.warm, begin).Sub(begin))
		}
		e.waitWarm(ctx, t)
	}
	after := programTimes(ctx, t)
	mean := func(name string) time.Duration {
		return time.Duration((after[name].sum - before[name].sum) / (after[name].count - before[name].count) * float64(time.Second))
	}
	whole, worker := mean("atoll_hub_claim_duration_seconds"), mean("atoll_worker_claim_seconds")
	assigned, write := mean("atoll_worker_claim_assigned_seconds"), mean("atoll_worker_claim_write_seconds")
	figures.add("claim with swap, mean: route and link", whole-worker)
	figures.add("claim with swap, mean: queue", assigned-write)
	figures.add("claim with swap, mean: write", write)
	figures.add("claim with swap, mean: start", worker-assigned)

	for range sampleSize {
		there := map[string]bool{}
		for _, pod := range e.waitWarm(ctx, t) {
			there[pod.Name] = true
		}
		begin := time.Now()
		sandbox := e.mustClaim(ctx, t, "")
		figures.add("claim without swap: call to answer", time.Since(begin))
		begin = time.Now()
		release(ctx, t, sandbox)
		successor := func(p *corev1.Pod) bool { return e.warm(p) && !there[p.Name] }
		figures.add("replace: release to the new Pod ready", seen.first(ctx, t, "", successor, begin).Sub(begin))
		e.waitWarm(ctx, t)
	}
}

// claimStages tells what happened between the claim's write and its answer.
func claimStages(ctx context.Context, t *testing.T, seen *sightings, what string, sandbox *sandboxv1.Sandbox, answered time.Time) {
	t.Helper()
	of := func(p *corev1.Pod) bool { return p.Labels[v1alpha1.SandboxIDLabelKey] == sandbox.GetId() }
	written := seen.first(ctx, t, sandbox.GetPod(), of, time.Time{})
	noticed := seen.first(ctx, t, sandbox.GetPod(), func(p *corev1.Pod) bool {
		return of(p) && p.Status.ObservedGeneration == p.Generation
	}, written)
	var id string
	reported := seen.first(ctx, t, sandbox.GetPod(), func(p *corev1.Pod) bool {
		if !of(p) || len(p.Status.ContainerStatuses) != 1 {
			return false
		}
		c := p.Status.ContainerStatuses[0]
		id = c.ContainerID
		return c.Ready && c.ContainerID != p.Annotations[v1alpha1.SwapFromContainerIDAnnotationKey]
	}, written)
	_, id, _ = strings.Cut(id, "://")
	out, err := nodes[resets].Exec(ctx, "crictl", "inspect", "--output", "go-template", "--template",
		"{{.status.createdAt}} {{.status.startedAt}}", id)
	must.Succeed(t, err)
	fields := strings.Fields(out)
	if len(fields) != 2 {
		t.Fatalf("the runtime says %q of container %s", out, id)
	}
	created, started := parseTime(t, fields[0]), parseTime(t, fields[1])
	figures.add(what+": written to seen by the kubelet", noticed.Sub(written))
	figures.add(what+": written to container created", created.Sub(written))
	figures.add(what+": created to started", started.Sub(created))
	figures.add(what+": started to reported ready", reported.Sub(started))
	figures.add(what+": reported to answered", answered.Sub(reported))
}

func parseTime(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	must.Succeed(t, err)
	return at
}

// sightings are the states of an Env's Pods, with the times at which this process saw them.
type sightings struct {
	mu  sync.Mutex
	all []sighting
}

type sighting struct {
	at  time.Time
	pod *corev1.Pod
}

func watchPods(ctx context.Context, t *testing.T, e *env) *sightings {
	t.Helper()
	watcher, err := kube[e.cluster].Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace),
		client.MatchingLabels{v1alpha1.LabelEnv: e.name})
	must.Succeed(t, err)
	t.Cleanup(watcher.Stop)
	s := &sightings{}
	go func() {
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				s.mu.Lock()
				s.all = append(s.all, sighting{time.Now(), pod})
				s.mu.Unlock()
			}
		}
	}()
	return s
}

// first is when a Pod, any one if it has no name, was first seen so, not before a time.
func (s *sightings) first(ctx context.Context, t *testing.T, pod string, is func(*corev1.Pod) bool, since time.Time) (at time.Time) {
	t.Helper()
	wait.For(t, patience, "a sighting of "+pod, func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, seen := range s.all {
			if (pod == "" || seen.pod.Name == pod) && !seen.at.Before(since) && is(seen.pod) {
				at = seen.at
				return nil
			}
		}
		return fmt.Errorf("%d sightings", len(s.all))
	})
	return at
}

type sum struct{ sum, count float64 }

// programTimes adds up the histograms of hub and worker.
func programTimes(ctx context.Context, t *testing.T) map[string]sum {
	t.Helper()
	times := map[string]sum{}
	for _, instance := range []string{"atoll-hub", "atoll-worker"} {
		var pods corev1.PodList
		err := kube[resets].List(ctx, &pods, client.InNamespace(stack.Namespace), client.MatchingLabels{"app.kubernetes.io/instance": instance})
		if err != nil || len(pods.Items) != 1 {
			t.Fatalf("%d Pods of %s, %v", len(pods.Items), instance, err)
		}
		text, err := askIn(ctx, resets, stack.Namespace, pods.Items[0].Name, 9090, "/metrics")
		must.Succeed(t, err)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatal(fmt.Errorf("reading the metrics of %s: %w", instance, err))
		}
		for name, family := range families {
			for _, m := range family.GetMetric() {
				total := times[name]
				total.sum += m.GetHistogram().GetSampleSum()
				total.count += float64(m.GetHistogram().GetSampleCount())
				times[name] = total
			}
		}
	}
	return times
}
