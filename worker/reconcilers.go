// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/admission/quota"
	"navix.sh/atoll/worker/internal/adoption"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/autoscale"
	"navix.sh/atoll/worker/internal/env"
	"navix.sh/atoll/worker/internal/foreigncontroller"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/latency"
	"navix.sh/atoll/worker/internal/lease"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/pool"
	"navix.sh/atoll/worker/internal/replicas"
	"navix.sh/atoll/worker/internal/sandboxes"
	"navix.sh/atoll/worker/internal/standalone"
)

// newHooks adds what runs post-start hooks, on the leader.
func newHooks(
	mgr ctrl.Manager, cfg *rest.Config, sandboxes *sandboxes.Service, lock *lease.Lock, local clock.WithTicker, times *latency.Recorder, log logr.Logger,
) (*hooks.Runner, error) {
	cluster, err := hooks.NewCluster(cfg)
	if err != nil {
		return nil, err
	}
	runner, err := hooks.New(hooks.Options{
		Pods: cluster, Exec: cluster, Guard: sandboxes, Held: lock.Held, Clock: local, Latency: times, Log: log.WithName("hooks"),
	})
	if err != nil {
		return nil, fmt.Errorf("building the runner of hooks: %w", err)
	}
	if err := mgr.Add(runner); err != nil {
		return nil, fmt.Errorf("adding the runner of hooks: %w", err)
	}
	return runner, nil
}

// gate is who is asked before pools and Pods are made, and what was refused of late.
type gate struct {
	chain    *admission.Chain
	refusals *admission.Refusals
}

// refused is why a pool's latest Pod was refused, and how long ago.
func (g gate) refused(pool types.NamespacedName) (message string, age time.Duration, ok bool) {
	last, ok := g.refusals.Last(pool)
	return last.Message, last.Age, ok
}

// newAdmission lists the admission plugins, in the order in which they are asked: those that reserve something last.
func newAdmission(ctx context.Context, mgr ctrl.Manager, cfg *rest.Config, o options, local clock.PassiveClock, log logr.Logger) (gate, error) {
	refusals := admission.NewRefusals(local)
	plugins := []admission.Plugin{refusals}
	if o.teamQuotas {
		limits, err := quota.NewSource(ctx, cfg, o.namespace, log.WithName("quota"))
		if err != nil {
			return gate{}, err
		}
		if err := mgr.Add(limits); err != nil {
			return gate{}, fmt.Errorf("adding the teams' quotas: %w", err)
		}
		plugins = append(plugins, quota.New(quota.Options{
			ClusterID: o.clusterID, Reader: mgr.GetCache(), Limits: limits.Limits, Clock: local,
		}))
	}
	chain := admission.New(plugins...)
	return gate{chain, refusals}, chain.Register(metrics.Registry)
}

// newAutoscaler adds what scales the groups of Envs, on the leader.
func newAutoscaler(
	ctx context.Context, mgr ctrl.Manager, o options, path claimPath, contests *replicas.Contests, gate gate, others *foreigncontroller.Watch,
	local clock.WithTicker, serverTime *apitime.Clock,
) (*autoscale.Reconciler, error) {
	scaler, err := autoscale.New(autoscale.Options{
		Client: mgr.GetClient(), ClusterID: o.clusterID, Claims: path.claims, Inventory: path.inventory, Contests: contests, Events: mgr.GetEventRecorder("atoll-worker"),
		Registry: metrics.Registry, Clock: local, Times: serverTime, Admission: gate.chain, Refused: gate.refused, Paused: others.Paused,
	})
	if err != nil {
		return nil, fmt.Errorf("building the autoscaler: %w", err)
	}
	path.claims.SetOutlook(scaler.Outlook)
	if err := scaler.SetupWithManager(ctx, mgr); err != nil {
		return nil, fmt.Errorf("adding the autoscaler: %w", err)
	}
	return scaler, nil
}

// parts are what reconcilers share with the rest of the worker.
type parts struct {
	envs       *env.Reconciler
	path       claimPath
	prepare    *hooks.Runner
	gate       gate
	others     *foreigncontroller.Watch
	times      *latency.Recorder
	serverTime *apitime.Clock
}

func addReconcilers(ctx context.Context, mgr ctrl.Manager, o options, p parts) error {
	if err := p.envs.SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("adding the Env reconciler: %w", err)
	}
	if err := podtemplate.Setup(mgr, p.serverTime); err != nil {
		return fmt.Errorf("adding the template reconciler: %w", err)
	}
	standalonePools, err := standalone.Setup(mgr, standalone.Options{Paused: p.others.PausedPool, Registerer: metrics.Registry})
	if err != nil {
		return fmt.Errorf("adding the reconciler of pools without an Env: %w", err)
	}
	err = adoption.Setup(mgr, adoption.Options{ClusterID: o.clusterID, Mode: o.adoptPools, Paused: p.others.PausedPool, Registerer: metrics.Registry})
	if err != nil {
		return fmt.Errorf("adding the adoption of pools: %w", err)
	}
	pools, err := pool.New(pool.Options{
		Client: mgr.GetClient(), Recorder: p.path.sandboxes, Events: mgr.GetEventRecorder("atoll-worker"), ClusterID: o.clusterID,
		Queues: p.path.claims, Hooks: p.prepare, Admission: p.gate.chain, Refusals: p.gate.refusals, Gaters: []pool.Gater{p.others, standalonePools},
		Latency: p.times, Registry: metrics.Registry, Times: p.serverTime,
	})
	if err != nil {
		return fmt.Errorf("building the pool reconciler: %w", err)
	}
	if err := pools.SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("adding the pool reconciler: %w", err)
	}
	return nil
}

// newForeignWatch adds what knows of other controllers of the same objects.
func newForeignWatch(mgr ctrl.Manager, o options, local clock.WithTicker, log logr.Logger) (*foreigncontroller.Watch, error) {
	others, err := foreigncontroller.New(foreigncontroller.Options{
		Leases: mgr.GetAPIReader(), Namespace: o.namespace, Named: o.foreignLeases, Events: mgr.GetEventRecorder("atoll-worker"),
		Clock: local, Metrics: metrics.Registry, Log: log.WithName("foreigncontroller"),
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(others); err != nil {
		return nil, fmt.Errorf("adding the look-out for other controllers: %w", err)
	}
	return others, nil
}
