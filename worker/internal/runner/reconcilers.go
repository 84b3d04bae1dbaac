// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/admission/quota"
	"navix.sh/atoll/worker/internal/adoption"
	"navix.sh/atoll/worker/internal/autoscale"
	"navix.sh/atoll/worker/internal/controllers"
	"navix.sh/atoll/worker/internal/env"
	"navix.sh/atoll/worker/internal/foreigncontroller"
	"navix.sh/atoll/worker/internal/hooks"
	"navix.sh/atoll/worker/internal/netpolicy"
	"navix.sh/atoll/worker/internal/podtemplate"
	"navix.sh/atoll/worker/internal/pool"
	"navix.sh/atoll/worker/internal/replicas"
	"navix.sh/atoll/worker/internal/rooms"
	"navix.sh/atoll/worker/internal/standalone"
)

// gate has the admission chain for pools and Pods, and the recent refusals.
type gate struct {
	chain    *admission.Chain
	refusals *admission.Refusals
}

// refused returns why a pool's latest Pod was refused, and how long ago.
func (g gate) refused(pool types.NamespacedName) (message string, age time.Duration, ok bool) {
	last, ok := g.refusals.Last(pool)
	return last.Message, last.Age, ok
}

// addAdmission lists the admission plugins in the order in which they are asked. Those with reservations come last.
func (w *assembly) addAdmission(ctx context.Context) error {
	refusals := admission.NewRefusals(w.local)
	plugins := []admission.Plugin{refusals}
	if w.pools.teamQuotas {
		limits, err := quota.NewSource(ctx, w.cfg, w.namespace, w.log.WithName("quota"))
		if err != nil {
			return err
		}
		if err := w.mgr.Add(limits); err != nil {
			return fmt.Errorf("adding the teams' quotas: %w", err)
		}
		plugins = append(plugins, quota.New(quota.Options{
			ClusterID: w.clusterID, Reader: w.mgr.GetCache(), Limits: limits.Limits, Clock: w.local,
		}))
	}
	w.gate = gate{admission.New(w.local, plugins...), refusals}
	return w.gate.chain.Register(w.registry)
}

// addForeign adds the detection of other controllers of the same objects.
func (w *assembly) addForeign(context.Context) (err error) {
	w.others, err = foreigncontroller.New(foreigncontroller.Options{
		Leases: w.mgr.GetAPIReader(), Namespace: w.namespace, Named: w.pools.foreignLeases, Events: w.events(),
		Clock: w.local, Metrics: w.registry, Log: w.log.WithName("foreigncontroller"),
	})
	if err != nil {
		return err
	}
	if err := w.mgr.Add(w.others); err != nil {
		return fmt.Errorf("adding the watcher of other controllers: %w", err)
	}
	return nil
}

func (w *assembly) events() events.EventRecorder {
	return w.mgr.GetEventRecorder(controllers.FieldManager)
}

// addAutoscaler adds the autoscaler of Envs' groups, on the leader.
func (w *assembly) addAutoscaler(ctx context.Context) (err error) {
	w.contests = replicas.NewContests(w.local)
	w.rooms = rooms.New(w.mgr.GetClient(), w.local)
	w.scaler, err = autoscale.New(autoscale.Options{
		Client: w.mgr.GetClient(), ClusterID: w.clusterID, Claims: w.path.claims, Inventory: w.path.inventory, Contests: w.contests,
		Events: w.events(), Registry: w.registry, Clock: w.local, Times: w.serverTime,
		Admission: w.gate.chain, Refused: w.gate.refused, Paused: w.others.Paused, Rooms: w.rooms,
	})
	if err != nil {
		return fmt.Errorf("building the autoscaler: %w", err)
	}
	w.path.claims.SetOutlook(w.scaler.Outlook)
	if err := w.scaler.SetupWithManager(ctx, w.mgr); err != nil {
		return fmt.Errorf("adding the autoscaler: %w", err)
	}
	return nil
}

func (w *assembly) buildEnvs(context.Context) (err error) {
	w.envs, err = env.New(w.mgr, env.Options{
		ClusterID: w.clusterID, Namespace: w.namespace, Clock: w.serverTime, Local: w.local, Admission: w.gate.chain, Contests: w.contests,
		Paused: w.others.Paused, NoPullSecrets: !w.pools.pullSecrets, Leads: w.lock.Held, Registerer: w.registry, Allotted: w.rooms.On,
	})
	if err != nil {
		return fmt.Errorf("building the Env reconciler: %w", err)
	}
	return nil
}

// addReconcilers adds the controllers. The pool controller comes last, because it asks package standalone whether to wait.
func (w *assembly) addReconcilers(ctx context.Context) error {
	if err := w.envs.SetupWithManager(ctx, w.mgr); err != nil {
		return fmt.Errorf("adding the Env reconciler: %w", err)
	}
	if err := podtemplate.Setup(w.mgr, w.serverTime); err != nil {
		return fmt.Errorf("adding the template reconciler: %w", err)
	}
	withoutEnv, err := standalone.Setup(w.mgr, standalone.Options{Paused: w.others.PausedPool, Registerer: w.registry, Clock: w.local})
	if err != nil {
		return fmt.Errorf("adding the reconciler of pools without an Env: %w", err)
	}
	err = adoption.Setup(w.mgr, adoption.Options{
		ClusterID: w.clusterID, Mode: w.pools.adopt, Paused: w.others.PausedPool, Registerer: w.registry,
	})
	if err != nil {
		return fmt.Errorf("adding the adoption of pools: %w", err)
	}
	runner, err := w.addHooks()
	if err != nil {
		return err
	}
	gaters := []pool.Gater{w.others, withoutEnv}
	if closed, err := w.addNetworkPolicies(); err != nil {
		return err
	} else if closed != nil {
		gaters = append(gaters, closed)
	}
	pools, err := pool.New(pool.Options{
		Client: w.mgr.GetClient(), Recorder: w.path.sandboxes, Events: w.events(), ClusterID: w.clusterID, SandboxdImage: w.pools.sandboxd,
		Queues: w.path.claims, Hooks: runner, Admission: w.gate.chain, Refusals: w.gate.refusals,
		Gaters: gaters, Latency: w.latency, Registry: w.registry, Times: w.serverTime,
	})
	if err != nil {
		return fmt.Errorf("building the pool reconciler: %w", err)
	}
	if err := pools.SetupWithManager(ctx, w.mgr); err != nil {
		return fmt.Errorf("adding the pool reconciler: %w", err)
	}
	return nil
}

// addNetworkPolicies adds the policies of pools. It returns nil if they are off.
func (w *assembly) addNetworkPolicies() (*netpolicy.Reconciler, error) {
	if !w.network.on() {
		return nil, netpolicy.AddCleanup(w.mgr, w.log.WithName("netpolicy"))
	}
	from, err := labels.ConvertSelectorToLabelsMap(w.network.from)
	if err != nil {
		return nil, fmt.Errorf("reading --sandbox-network-from: %w", err)
	}
	r, err := netpolicy.Setup(w.mgr, netpolicy.Options{
		Mode: w.network.mode, Egress: w.network.egress,
		Worker: netpolicy.Worker{Namespace: w.namespace, Labels: from}, Paused: w.others.PausedPool, Clock: w.local,
		Log: w.log.WithName("netpolicy"),
	})
	if err != nil {
		return nil, fmt.Errorf("adding the network policies of sandboxes: %w", err)
	}
	return r, nil
}

// addHooks adds the runner of post-start hooks, on the leader.
func (w *assembly) addHooks() (*hooks.Runner, error) {
	cluster, err := hooks.NewCluster(w.cfg)
	if err != nil {
		return nil, err
	}
	options := hooks.Options{
		Pods: cluster, Exec: cluster, Guard: w.path.sandboxes, Held: w.lock.Held, Clock: w.local, Latency: w.latency,
		Log: w.log.WithName("hooks"),
	}
	if w.pools.hookSecrets {
		options.Secrets = cluster
	}
	runner, err := hooks.New(options)
	if err != nil {
		return nil, fmt.Errorf("building the runner of hooks: %w", err)
	}
	if err := w.mgr.Add(runner); err != nil {
		return nil, fmt.Errorf("adding the runner of hooks: %w", err)
	}
	return runner, nil
}
