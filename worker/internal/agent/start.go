// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/wallclock"
)

var _ manager.LeaderElectionRunnable = (*Agent)(nil)

// SetupWithManager returns an agent that the manager runs while it leads.
func SetupWithManager(ctx context.Context, mgr manager.Manager, opts Options) (*Agent, error) {
	a := New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetCache(), opts)
	if opts.Metrics != nil {
		if err := a.register(opts.Metrics); err != nil {
			return nil, err
		}
	}
	if err := a.Watch(ctx, mgr.GetCache()); err != nil {
		return nil, err
	}
	return a, errors.Join(mgr.Add(a), mgr.Add(a.Shutdown()))
}

// Watch registers the agent's watches at the informers. Call it before Start.
func (a *Agent) Watch(ctx context.Context, informers cache.Informers) error {
	if a.opts.OnPausedChange != nil {
		a.opts.OnPausedChange(func() {
			if err := a.source.MarkAll(ctx, nil); err != nil {
				a.opts.Log.Error(err, "cannot report yet which pools another controller manages")
			}
		})
	}
	return a.source.Watch(ctx, informers)
}

// Shutdown returns a runnable that ends the link to the hub when the process must end. It runs beside the agent.
func (a *Agent) Shutdown() manager.Runnable { return shutdown{a} }

// NeedLeaderElection returns true: only the leader reports for its cluster.
func (a *Agent) NeedLeaderElection() bool { return true }

// Start runs until ctx ends. It fails permanently if the state in the cluster or the hub's address is corrupt, or if etcd was restored from
// a backup: then all state in this process describes a cluster that no longer exists.
func (a *Agent) Start(ctx context.Context) error {
	a.term, a.running = rand.Text(), ctx
	if err := a.lead(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.watchRevision(ctx) })
	if a.opts.Hub.Target == "" {
		a.arm()
	} else {
		group.Go(func() error { return a.armLater(ctx) })
		group.Go(func() error { return a.keepLedger(ctx) })
		group.Go(func() error { return a.link(ctx) })
	}
	return group.Wait()
}

// link maintains a stream to the hub.
func (a *Agent) link(leading context.Context) error {
	defer a.executing.Wait()
	defer close(a.ending.unlinked)
	ctx, cut := context.WithCancel(leading)
	defer cut()
	defer a.endTunnels()
	defer context.AfterFunc(a.ending.late, cut)()
	var restored error
	err := link.Run(ctx, a.opts.Hub, func(ctx context.Context, hub federationv1.LinkClient) error {
		err := a.opts.Identity.Prepare(ctx, a.opts.Hub)
		if err == nil {
			err = a.serve(ctx, hub)
			a.opts.Identity.Ended(err)
		}
		if errors.Is(err, errRestored) {
			restored = a.afterRestore(leading)
			cut()
		} else {
			a.serveAlone(ctx)
		}
		if a.ending.begun.Err() != nil {
			cut() // the next leader dials
		}
		return err
	})
	return errors.Join(err, restored)
}

// serveAlone serves claims without a hub (I8). If the hub has said that etcd was restored, idle Pods are replaced first.
func (a *Agent) serveAlone(ctx context.Context) {
	if err := a.replaceSuspects(ctx); err != nil && ctx.Err() == nil {
		a.opts.Log.Error(err, "Cannot replace idle Pods; a worker that serves no claims yet serves none before", "serving", a.armed())
	}
	a.arm()
}

// armLater serves claims after hubPatience if the hub has not responded by then (I8).
func (a *Agent) armLater(ctx context.Context) error {
	timer := a.opts.Clock.NewTimer(hubPatience)
	defer timer.Stop()
	select {
	case <-timer.C():
		a.arm()
	case <-a.ready:
	case <-ctx.Done():
	}
	return nil
}

// lead persists this term's incarnation. It retries, because nothing is served before.
func (a *Agent) lead(ctx context.Context) error {
	pause := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 10 * time.Second}
	for {
		n, err := a.store.next(ctx, 0)
		switch {
		case err == nil:
			a.incarnation.Store(n)
			a.opts.Rooms.Begin(n)
			if err := a.loadAllotted(ctx); err != nil {
				a.opts.Log.Error(err, "cannot read whether the hub limits growth, serving nothing until then")
				break
			}
			if mark, err := a.store.loadLedger(ctx); err != nil {
				a.opts.Log.Info("Starting without what is stored of the hub's ledger", "error", err.Error())
			} else {
				a.remember(mark)
			}
			a.opts.Log.Info("leading", "incarnation", n, "term", a.term)
			return nil
		case errors.Is(err, errCorruptState):
			return err
		case ctx.Err() != nil:
			return nil
		}
		if err != nil {
			a.opts.Log.Error(err, "cannot persist the incarnation, serving nothing until then")
		}
		if wallclock.Sleep(ctx, a.opts.Clock, pause.Step()) != nil {
			return nil
		}
	}
}
