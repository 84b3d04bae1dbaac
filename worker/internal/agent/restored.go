// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/patch"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
	"navix.sh/atoll/worker/internal/sandboxcache"
)

const (
	revisionInterval = time.Second
	// revisionHurry is the interval while the API server does not respond. It may come back with another etcd, and each write then raises that
	// etcd's revision towards the old one.
	revisionHurry   = 100 * time.Millisecond
	revisionTimeout = 10 * time.Second
	replacePause    = time.Second
)

// errRestored ends this term and the process, because its caches, index and expectations describe a state that no longer exists.
var errRestored = errors.New("etcd was set back to an earlier state")

// revision is the highest revision of etcd that was read. Only one read runs at a time: if two responses overtook each other, the later one
// could look like a step back.
type revision struct {
	asking  chan struct{} // holds the token of the reader; a waiter may give up
	highest atomic.Uint64
}

func newRevision() revision { return revision{asking: make(chan struct{}, 1)} }

// resourceVersion returns the current revision of the cluster's etcd, from an uncached list.
func (a *Agent) resourceVersion(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	select {
	case a.revision.asking <- struct{}{}:
		defer func() { <-a.revision.asking }()
	case <-ctx.Done():
		return 0, fmt.Errorf("reading etcd's revision: %w", ctx.Err())
	}
	before := max(a.revision.highest.Load(), a.opts.Inventory.NewestSeen())
	envs := &v1alpha1.SandboxEnvList{}
	if err := a.reader.List(ctx, envs, client.Limit(1)); err != nil {
		return 0, fmt.Errorf("reading etcd's revision: %w", err)
	}
	n, err := strconv.ParseUint(envs.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading etcd's revision: %w", err)
	}
	if n < before {
		return n, fmt.Errorf("%w: revision %d after %d", errRestored, n, before)
	}
	a.revision.highest.Store(n)
	return n, nil
}

// watchRevision detects that etcd was restored from a backup, with or without a hub.
func (a *Agent) watchRevision(ctx context.Context) error {
	failing := false
	for {
		interval := revisionInterval
		if failing {
			interval = revisionHurry
		}
		err := a.nextRevision(ctx, interval)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errRestored):
			a.opts.Log.Error(err, "Ending this term")
			return a.afterRestore(ctx)
		case err != nil && !failing:
			a.opts.Log.Error(err, "Cannot find out whether etcd was restored to an earlier state")
		}
		failing = err != nil
	}
}

// nextRevision reads the revision after a pause, unless the inventory detects a restore first.
func (a *Agent) nextRevision(ctx context.Context, after time.Duration) error {
	timer := a.opts.Clock.NewTimer(after)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-a.opts.Inventory.SetBack():
		return fmt.Errorf("%w: %w", errRestored, inventory.ErrSetBack)
	case <-timer.C():
		_, err := a.resourceVersion(ctx)
		return err
	}
}

// afterRestore stops serving, replaces idle Pods, and ends this term. Running sandboxes keep running.
func (a *Agent) afterRestore(ctx context.Context) error {
	a.opts.Inventory.Suspend()
	for {
		err := a.replaceIdle(ctx)
		if err == nil {
			return errRestored
		}
		a.opts.Log.Error(err, "Serving nothing until idle Pods are replaced")
		if wallclock.Sleep(ctx, a.opts.Clock, replacePause) != nil {
			return errRestored
		}
	}
}

// suspectIdle records whether Pods that look idle may run sandboxes.
func (a *Agent) suspectIdle(suspects bool) {
	a.arming.Lock()
	defer a.arming.Unlock()
	a.suspects = suspects
}

// replaceSuspects replaces idle Pods if the hub has said that etcd was restored. Until it succeeds, arm has no effect. After an error, the
// next attempt to attach replaces the Pods, whether there is a hub or not.
func (a *Agent) replaceSuspects(ctx context.Context) error {
	a.arming.Lock()
	suspects := a.suspects
	a.arming.Unlock()
	if !suspects {
		return nil
	}
	if err := a.replaceIdle(ctx); err != nil {
		return err
	}
	a.suspectIdle(false)
	return nil
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;delete

// replaceIdle deletes all idle Pods, and their pools replace them. After a restore of etcd, a Pod that looks idle may have been claimed in
// the time that was lost (I1). So may a Pod that waits for its reset: the reset may be long done, and the container another tenant's.
func (a *Agent) replaceIdle(ctx context.Context) error {
	// This comes first. In the other order, both loops would miss a sandbox that ends in between.
	if err := a.neverReset(ctx); err != nil {
		return err
	}
	count := 0
	for pod, err := range sandboxcache.LivePods(ctx, a.reader, sandbox.Idle, sandbox.Stopping) {
		if err != nil {
			return fmt.Errorf("after etcd was restored: %w", err)
		}
		if pod.DeletionTimestamp != nil {
			continue
		}
		if err := a.deleteIdle(ctx, pod); err != nil {
			return fmt.Errorf("deleting idle pod %s/%s after etcd was restored: %w", pod.Namespace, pod.Name, err)
		}
		count++
	}
	a.opts.Log.Info("etcd was restored to an earlier state, idle pods are being replaced", "count", count)
	return nil
}

// deleteIdle deletes a Pod, unless it is claimed meanwhile. A Pod that has changed otherwise, as by a status of its kubelet, is read again.
func (a *Agent) deleteIdle(ctx context.Context, pod *corev1.Pod) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lost := a.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
		if !apierrors.IsConflict(lost) {
			return lost
		}
		now := &corev1.Pod{}
		if err := a.reader.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		phase := sandbox.PhaseOf(now)
		if now.UID != pod.UID || now.DeletionTimestamp != nil || phase != sandbox.Idle && phase != sandbox.Stopping {
			return nil
		}
		pod = now
		return lost
	})
	return client.IgnoreNotFound(err)
}

// neverReset marks the Pod of every sandbox to be replaced when the sandbox ends. etcd's data about its container is outdated: the current
// container may be another tenant's, from the time that was lost, and would look like one that a reset has created (I13).
func (a *Agent) neverReset(ctx context.Context) error {
	for pod, err := range sandboxcache.LivePods(ctx, a.reader, sandbox.Starting, sandbox.Running) {
		if err != nil {
			return fmt.Errorf("after etcd was restored: %w", err)
		}
		err := a.client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.JSONPatchType, sandbox.NeverResetPatch(pod)))
		if err != nil && !patch.LostRace(err) {
			return fmt.Errorf("having pod %s/%s replaced when its sandbox ends: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}
