// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
	// revisionHurry is the interval while the API server does not answer. One that comes up may have another etcd behind it,
	// and from then on every write brings that closer to where the old one was.
	revisionHurry   = 100 * time.Millisecond
	revisionTimeout = 10 * time.Second
	replacePause    = time.Second
)

// errRestored ends this term, and the process: its caches, its index and its expectations are of a state that is no more.
var errRestored = errors.New("etcd was set back to an earlier state")

// revision is how far etcd was when it was last asked. It is asked once at a time: of two answers that overtake each other
// the later one could look like a step back.
type revision struct {
	asking  chan struct{} // one token: whoever asks has it, and whoever waits for it may give up
	highest atomic.Uint64
}

func newRevision() revision { return revision{asking: make(chan struct{}, 1)} }

// resourceVersion is where the cluster's etcd is now: what an uncached list of anything returns.
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

// watchRevision finds out that etcd was set back, with or without a hub.
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
			a.opts.Log.Error(err, "Cannot tell whether etcd was set back")
		}
		failing = err != nil
	}
}

// nextRevision asks after a while, unless the claim service finds out before.
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

// afterRestore serves nothing any more, replaces what looks idle, and says that this term is over. What runs runs on.
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

// +kubebuilder:rbac:groups="",resources=pods,verbs=list;delete

// replaceIdle deletes all idle Pods, which their pools then replace. After etcd was set back, a Pod that looks idle may
// have been handed out in the time that was lost (I1). So may one that is on its way to idle: the reset that it waits for
// may be long done, and its container somebody's. One that is claimed meanwhile stays: the resourceVersion differs.
func (a *Agent) replaceIdle(ctx context.Context) error {
	// First, or a sandbox that ends in between would be seen by neither.
	if err := a.neverReset(ctx); err != nil {
		return err
	}
	count := 0
	for pod, err := range sandboxcache.Live(a.reader).InPhase(ctx, sandbox.Idle, sandbox.Stopping) {
		if err != nil {
			return fmt.Errorf("after etcd was restored: %w", err)
		}
		if pod.DeletionTimestamp != nil {
			continue
		}
		only := client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
		err := a.client.Delete(ctx, pod, only)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting idle pod %s/%s after etcd was restored: %w", pod.Namespace, pod.Name, err)
		}
		count++
	}
	a.opts.Log.Info("etcd was restored to an earlier state, idle pods are being replaced", "count", count)
	return nil
}

// neverReset has every Pod of a sandbox replaced when that ends. What etcd says of its container is of before: the container of
// now may be somebody else's, from the time that was lost, and would pass for one that a reset has made (I13).
func (a *Agent) neverReset(ctx context.Context) error {
	for pod, err := range sandboxcache.Live(a.reader).InPhase(ctx, sandbox.Starting, sandbox.Running) {
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
