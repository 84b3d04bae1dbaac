// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
)

// leaseGone is how long after a kill -9 the dead worker's lease may block the next.
const leaseGone = 16 * time.Second

// killedOverAndOver kills the workers of all clusters at random moments: while they start, wait for the lease, list, serve.
func killedOverAndOver(ctx context.Context, s *scenario) error {
	rounds := (*killsFlag + len(clusters) - 1) / len(clusters)
	s.details = fmt.Sprintf(" and all others %d times each", rounds)
	errs := make([]error, len(clusters))
	var killers sync.WaitGroup
	for i, cluster := range clusters {
		random := rand.New(rand.NewPCG(s.seed, uint64(i)))
		killers.Go(func() { errs[i] = s.programs[cluster].killAgainAndAgain(ctx, rounds, random) })
	}
	killers.Wait()
	return errors.Join(append(errs, s.heal())...)
}

// killAgainAndAgain kills a program shortly before or after it serves, repeatedly, and leaves it running.
func (p *program) killAgainAndAgain(ctx context.Context, times int, random *rand.Rand) error {
	begin := time.Now()
	for i := range times - 1 {
		if err := p.kill(); err != nil {
			return err
		}
		moment := time.Duration(random.Int64N(int64(3 * time.Second)))
		if random.IntN(4) == 0 {
			p.startFor(ctx, moment)
			continue
		}
		if err := p.start(ctx); err != nil {
			return err
		}
		linger(ctx, moment)
		if (i+1)%10 == 0 {
			fmt.Fprintf(os.Stderr, "faults: %s was killed %d of %d times in %s\n", p.program, i+1, times, time.Since(begin).Round(time.Second))
		}
	}
	return p.crash(ctx)
}

// startedTwice repeatedly starts two workers of one cluster at the same moment.
func startedTwice(ctx context.Context, s *scenario) error {
	for range 3 {
		p := s.programs[s.victim]
		if err := p.kill(); err != nil {
			return err
		}
		var starting sync.WaitGroup
		var first error
		starting.Go(func() { first = p.start(ctx) })
		_, _, end, err := s.second(ctx)
		starting.Wait()
		if err := errors.Join(first, err); err != nil {
			return err
		}
		s.between(ctx, leaseGone, leaseGone+8*time.Second)
		if err := end(); err != nil {
			return err
		}
	}
	return s.heal()
}

// edits are edits that a user may make to a Pod.
var edits = []struct {
	name string
	edit func(pod *corev1.Pod)
	idle bool // done to idle Pods, else to those of sandboxes, which keep running
	// forced edits use the worker's identity, which no admission policy stops, as in a cluster without them.
	forced bool
}{
	{"an odd phase", relabel(v1alpha1.SandboxPhaseLabelKey, "odd"), true, true},
	{"no phase", relabel(v1alpha1.SandboxPhaseLabelKey, ""), true, true},
	{"running without a sandbox", relabel(v1alpha1.SandboxPhaseLabelKey, v1alpha1.SandboxPhaseRunning), true, true},
	{"stopping", relabel(v1alpha1.SandboxPhaseLabelKey, v1alpha1.SandboxPhaseStopping), true, true},
	{"another image", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "registry.example/other:1" }, true, true},
	{"no pool", relabel(v1alpha1.SandboxPoolLabelKey, ""), true, true},
	{"no finalizer", func(pod *corev1.Pod) { controllerutil.RemoveFinalizer(pod, v1alpha1.SandboxProtectionFinalizer) }, false, true},
	{"idle while it runs", relabel(v1alpha1.SandboxPhaseLabelKey, v1alpha1.SandboxPhaseIdle), false, true},
	{"an odd phase of a sandbox", relabel(v1alpha1.SandboxPhaseLabelKey, "odd"), false, true},
	{"no phase of a sandbox", relabel(v1alpha1.SandboxPhaseLabelKey, ""), false, true},
	{"failed while it runs", relabel(v1alpha1.SandboxPhaseLabelKey, v1alpha1.SandboxPhaseFailed), false, true},
	{"stopping while it runs", relabel(v1alpha1.SandboxPhaseLabelKey, v1alpha1.SandboxPhaseStopping), false, true},
	{"no pool of a sandbox", relabel(v1alpha1.SandboxPoolLabelKey, ""), false, true},
	{"another pool's sandbox", relabel(v1alpha1.SandboxPoolLabelKey, "another"), false, true},
	{"no id of a sandbox", relabel(v1alpha1.SandboxIDLabelKey, ""), false, true},
}

// relabel sets a label; without a value it removes it.
func relabel(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if value == "" {
			delete(pod.Labels, key)
			return
		}
		pod.Labels[key] = value
	}
}

// podsEdited edits Pods by hand: claims continue, no sandbox ends because of it, and every Pod becomes as its pool requires.
func podsEdited(ctx context.Context, s *scenario) error {
	worker, err := s.as("atoll-worker")
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	done, refused := 0, 0
	for range 40 {
		e := edits[s.random.IntN(len(edits))]
		var by client.Client = s.kube[s.victim]
		if e.forced && s.random.IntN(4) > 0 {
			by = worker
		}
		switch ok, err := s.editOne(ctx, by, e.edit, e.idle); {
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			refused++
		case err != nil:
			return fmt.Errorf("editing a Pod (%s): %w", e.name, err)
		case ok:
			done++
		}
		s.between(ctx, 0, time.Second)
	}
	s.details = fmt.Sprintf(" %d edits, %d refused", done, refused)
	if err := s.heal(); err != nil {
		return err
	}
	return wait.Until(ctx, patience, "every Pod to be as it should", func(ctx context.Context) error { return s.wantTidy(ctx) })
}

// editOne edits a Pod, and returns false if no Pod fits, or another write came first.
func (s *scenario) editOne(ctx context.Context, by client.Client, edit func(*corev1.Pod), idle bool) (bool, error) {
	pods, err := s.pods(ctx, s.victim)
	if err != nil {
		return false, err
	}
	fits := slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		isIdle := pod.Labels[v1alpha1.SandboxPhaseLabelKey] == v1alpha1.SandboxPhaseIdle
		return pod.DeletionTimestamp != nil || isIdle != idle
	})
	if len(fits) == 0 {
		return false, nil
	}
	pod := fits[s.random.IntN(len(fits))]
	before := pod.DeepCopy()
	edit(&pod)
	// With the resourceVersion: a Pod that is claimed meanwhile stays unchanged.
	err = by.Patch(ctx, &pod, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// wantTidy waits until the victim has the desired number of Pods, each with the finalizer and a valid phase.
func (s *scenario) wantTidy(ctx context.Context) error {
	pods, err := s.pods(ctx, s.victim)
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		labels := pod.Labels
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && labels[v1alpha1.SandboxPoolLabelKey] != owner.Name {
			return fmt.Errorf("pod %s of pool %s is labelled as one of pool %q", pod.Name, owner.Name, labels[v1alpha1.SandboxPoolLabelKey])
		}
		switch phase := labels[v1alpha1.SandboxPhaseLabelKey]; phase {
		case v1alpha1.SandboxPhaseIdle:
			if pod.Spec.Containers[0].Image == "registry.example/other:1" {
				return fmt.Errorf("idle pod %s has an image that no caller asked for", pod.Name)
			}
		case v1alpha1.SandboxPhaseRunning, v1alpha1.SandboxPhaseStarting:
			if labels[v1alpha1.SandboxIDLabelKey] == "" {
				return fmt.Errorf("pod %s is %s and no sandbox", pod.Name, phase)
			}
		case v1alpha1.SandboxPhaseStopping: // on its way
		default:
			return fmt.Errorf("pod %s is in phase %q", pod.Name, phase)
		}
		if !controllerutil.ContainsFinalizer(pod, v1alpha1.SandboxProtectionFinalizer) {
			return fmt.Errorf("pod %s has no finalizer", pod.Name)
		}
	}
	return nil
}

// wantRecorded waits until the hub returns a record for every returned sandbox that has ended.
func (s *scenario) wantRecorded(ctx context.Context) error {
	held := s.load.holdings.Held()
	live := map[string]bool{}
	for _, sandbox := range held {
		live[sandbox.GetId()] = true
	}
	for _, id := range s.load.toldOf() {
		if live[id] {
			continue
		}
		err := wait.Until(ctx, patience, "the record of "+id, func(ctx context.Context) error {
			got, err := s.hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: id})
			ended := got.GetPhase() == sandboxv1.Phase_ENDED && got.GetStopReason() != "" // its Pod may still be stopping
			return errors.Join(err, wait.If(ended, got))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
