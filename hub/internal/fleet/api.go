// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
)

// Clusters returns all registered clusters, ordered by id.
func (f *Fleet) Clusters() []*sandboxv1.Cluster {
	var out []*sandboxv1.Cluster
	for _, c := range f.sorted() {
		if shown := c.proto(); shown != nil {
			out = append(out, shown)
		}
	}
	return out
}

// ClusterIDs lists the registered clusters in order.
func (f *Fleet) ClusterIDs() []string {
	var ids []string
	for _, c := range f.sorted() {
		c.mu.Lock()
		registered := c.record.UID != ""
		c.mu.Unlock()
		if registered {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Awaited lists, in order, the registered clusters that have not reported to this hub process and may still have Envs. It is empty once the
// process is at least unreachableAfter old: from then on unreported Envs count as absent.
func (f *Fleet) Awaited() []string {
	if f.now() >= unreachableAfter {
		return nil
	}
	return f.Unreported()
}

// Unreported lists, in order, the registered clusters without a report at this hub process. They may have members of any Env.
func (f *Fleet) Unreported() []string {
	return slices.DeleteFunc(f.ClusterIDs(), func(id string) bool { return f.cluster(id).known.Load() })
}

// Unmet lists, in order, the registered clusters that have sent no Hello to this hub process and whose report no peer has relayed to it.
func (f *Fleet) Unmet() []string {
	return slices.DeleteFunc(f.ClusterIDs(), func(id string) bool { return f.cluster(id).met.Load() })
}

// Cluster returns one cluster, or nil if it is not registered.
func (f *Fleet) Cluster(id string) *sandboxv1.Cluster {
	if c := f.cluster(id); c != nil {
		return c.proto()
	}
	return nil
}

func (c *cluster) proto() *sandboxv1.Cluster {
	c.mu.Lock()
	record, version, envs, totals, degraded := c.record, c.version, len(c.holdings.parts), c.holdings.totals(), c.degraded
	hosting := c.hosting
	c.mu.Unlock()
	if record.UID == "" {
		return nil // it was refused, or its hello is still in progress
	}
	health := c.Health()
	out := &sandboxv1.Cluster{
		Id: c.ID, State: apiState(health), Incarnation: record.Incarnation, Version: version,
		Envs: int32(envs), Members: totals.Members, Idle: totals.Idle, Running: totals.Running,
		Desired: totals.Desired, Pending: totals.Pending, RegisteredAt: timestamp(record.RegisteredAt), Uid: record.UID,
	}
	out.Scope = scopeProto(record.Scope)
	if hosting != nil {
		out.Hosted = &sandboxv1.HostedWorker{Host: hosting.GetHost(), Latency: hosting.GetLatency()}
	}
	if s := c.session.Load(); s != nil {
		out.CertificateExpires = timestamp(s.peer.Expires)
		if life := link.Lifetime(s.peer.Issued, s.peer.Expires); life > 0 {
			out.CertificateLifetime = durationpb.New(life)
		}
		out.Replica = cmp.Or(s.via, c.fleet.replica)
	}
	c.liveness.mu.Lock()
	seen, ago := c.liveness.seen, max(0, c.fleet.now()-c.liveness.lastSeen)
	c.liveness.mu.Unlock()
	if seen {
		out.LastSeen = durationpb.New(ago)
	}
	out.Message = healthMessage(health, seen, ago)
	if len(record.Keys) == 0 && (len(record.RefusedKeys) > 0 || !record.RevokedAt.IsZero()) {
		out.Revoked = true
		out.Message = join("revoked: its certificates are refused until it joins by an invitation", out.GetMessage())
	}
	if n := c.unsent.Load(); n > 0 {
		out.Message = join(fmt.Sprintf("named %d claims that this hub did not send to it", n), out.GetMessage())
	}
	if degraded != "" {
		if out.State == sandboxv1.ClusterState_FRESH {
			out.State = sandboxv1.ClusterState_DEGRADED
		}
		out.Message = join("degraded: "+degraded, out.GetMessage())
	}
	if record.Draining {
		out.Message = join("draining: gets no new claims", out.GetMessage())
	}
	return out
}

func join(first, rest string) string { return strings.TrimSuffix(first+"; "+rest, "; ") }

// NamedUnsent adds n claims that a cluster reported but that this hub did not send to it (I15). They appear in the cluster's message.
func (f *Fleet) NamedUnsent(clusterID string, n int) {
	if c := f.cluster(clusterID); c != nil {
		c.unsent.Add(int64(n))
	}
}

// degradation returns the reason why part of the cluster's reports does not count, or "" if all of it counts.
func (c *cluster) degradation() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.degraded
}

func healthMessage(h router.Health, seen bool, ago time.Duration) string {
	switch {
	case h == router.Quarantined:
		return "two clusters with this name take turns; stop one of them"
	case !seen:
		return "not seen since the hub started"
	case h == router.Unreachable && ago < unreachableAfter:
		return "back, and watched for a while before it gets claims again"
	case h == router.Unreachable, h == router.Silent:
		return "nothing heard for " + ago.Round(time.Second).String()
	case h == router.NoReceipt:
		return "did not confirm a dispatch within a second"
	case h == router.Disconnected:
		return "not connected"
	default:
		return ""
	}
}

func apiState(h router.Health) sandboxv1.ClusterState {
	switch {
	case h == router.Quarantined:
		return sandboxv1.ClusterState_QUARANTINED
	case h == router.Unreachable:
		return sandboxv1.ClusterState_UNREACHABLE
	case h == router.Draining:
		return sandboxv1.ClusterState_DRAINING
	case h.LastChoice():
		return sandboxv1.ClusterState_SUSPECT
	default:
		return sandboxv1.ClusterState_FRESH
	}
}

// Keys lists the Envs of a namespace in order; an empty namespace means all. Callers split the list into pages and look up each entry with
// Env.
func (f *Fleet) Keys(namespace string) []segment.Key { return f.index.keys(namespace) }

// Env returns the merged view of one Env, or nil if no cluster has it.
func (f *Fleet) Env(key segment.Key) *sandboxv1.Env {
	slot := f.index.get(key)
	if slot == nil {
		return nil
	}
	parts := slot.snapshot()
	if len(parts) == 0 {
		return nil
	}
	env := &sandboxv1.Env{Namespace: key.Namespace, Name: key.Name}
	now := f.now()
	var totals segment.Totals
	for _, p := range parts {
		totals = totals.Merge(p.segment.Totals())
		shown := &sandboxv1.EnvCluster{
			ClusterId: p.owner.ID, State: apiState(p.owner.Health()), Age: durationpb.New(max(0, now-p.owner.Seen())),
			Generation: p.segment.Generation,
		}
		shown.Fault = p.segment.Defaults.Get().Fault
		for _, m := range p.segment.Members() {
			shown.Members = append(shown.Members, m.Shown())
		}
		env.Clusters = append(env.Clusters, shown)
	}
	env.Idle, env.Running, env.Desired, env.Pending = totals.Idle, totals.Running, totals.Desired, totals.Pending
	env.MissingClusters, env.ClustersWithoutEnv = f.unserved(parts)
	return env
}

// Faults returns, by cluster, the faults of an Env that a person must fix before the Env's members in that cluster can serve.
func (f *Fleet) Faults(key segment.Key) map[string]string {
	slot := f.index.get(key)
	if slot == nil {
		return nil
	}
	faults := map[string]string{}
	for _, p := range slot.snapshot() {
		if fault := p.segment.Defaults.Get().Fault; fault != "" {
			faults[p.owner.ID] = fault
		}
	}
	return faults
}
