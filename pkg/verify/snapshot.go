// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

// Snapshot is the result of one look at a federation. Parts that could not be read are absent, and named in Blind.
type Snapshot struct {
	Clusters []Cluster
	Hub      *Hub // nil: not read
	Programs []Program
	Blind    []Blind
}

// Blind is a part of the federation that could not be read.
type Blind struct {
	What string // "hub", "cluster east", "metrics http://…"
	Why  string
	// Refused means that the part responds but rejects us.
	Refused bool
}

func (b Blind) String() string { return b.What + ": " + b.Why }

// hubLost reports whether there is a hub that does not respond. Clusters then learn of no changes in other clusters.
func (s *Snapshot) hubLost() bool {
	for _, b := range s.Blind {
		if b.What == hubName {
			return true
		}
	}
	return false
}

const hubName = "hub"

// Cluster is the contents of one API server.
type Cluster struct {
	ID    string
	UID   string // of the namespace kube-system
	Pods  []corev1.Pod
	Envs  []v1alpha1.SandboxEnv
	Pools []v1alpha1.SandboxPool
	Lease *Lease // nil: no lease
	// Incarnation is the highest one that a worker persisted in this cluster; 0: none.
	Incarnation uint64
	Clock       Clock
}

// Lease is the leader lease of a cluster's workers.
type Lease struct {
	Holder   string
	Duration time.Duration
	// Age is the time since the last renewal, measured only by the API server's clock. Nil if unknown.
	Age *time.Duration
}

// Clock is a server's clock.
type Clock struct {
	Now    time.Time     // zero: not known
	Offset time.Duration // ahead of this machine's
}

// Hub is the hub's report.
type Hub struct {
	Clusters  []*sandboxv1.Cluster
	Envs      []*sandboxv1.Env
	Sandboxes []*sandboxv1.Sandbox
	// Silent are the clusters whose sandboxes the hub could not list.
	Silent []string
	// Claims are the hub's entries for the keys of live Pods, by hash of the key. A nil entry means that the hub does not have the key.
	Claims map[string]*sandboxv1.Claim
	// Ended are the hub's entries for sandboxes that an earlier look saw and this one does not, by id. A nil entry means that the hub has
	// none.
	Ended  map[string]*sandboxv1.Sandbox
	Status *sandboxv1.HubStatus // nil: this hub does not report it
	// Replicas are the replicas of the hub as one of them sees them; empty for an older hub.
	Replicas []*sandboxv1.Replica
	Clock    Clock
	// Slowest is the duration of the slowest call that the hub serves from memory.
	Slowest time.Duration
}

// Program is a hub or a worker whose metrics were read.
type Program struct {
	Name string
	// Values are the metrics, summed over their labels.
	Values map[string]float64
}

// Finding is a violation of an invariant.
type Finding struct {
	Invariant string `json:"invariant"` // I1, I2, …
	Cluster   string `json:"cluster"`   // "hub" if the finding is not about a particular cluster
	Object    string `json:"object"`    // kind and name
	Wrong     string `json:"wrong"`
	Expected  string `json:"expected"`

	// passing marks a finding that may be transient, because views follow changes with a delay.
	passing bool
	// identity identifies the finding if Wrong contains a value that changes between looks. If it is empty, Wrong and Expected identify it.
	identity string
}

// same returns the part of a finding that is equal at each sighting.
func (f Finding) same() Finding {
	if f.identity != "" {
		f.Wrong, f.Expected = "", ""
	}
	return f
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s in %s: %s; expected %s", f.Invariant, f.Object, f.Cluster, f.Wrong, f.Expected)
}

// claimed is a Pod with a sandbox that may have been returned to a caller.
type claimed struct {
	cluster *Cluster
	pod     *corev1.Pod
}

func (c claimed) id() string     { return c.pod.Labels[v1alpha1.SandboxIDLabelKey] }
func (c claimed) String() string { return podName(c.pod) + " in " + c.cluster.ID }

// live returns the claimed Pods.
func (s *Snapshot) live() []claimed {
	var out []claimed
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Pods {
			p := &c.Pods[j]
			if p.DeletionTimestamp == nil && busy(p) {
				out = append(out, claimed{c, p})
			}
		}
	}
	return out
}

func podName(p *corev1.Pod) string { return "pod " + p.Namespace + "/" + p.Name }

func phase(p *corev1.Pod) string { return p.Labels[v1alpha1.SandboxPhaseLabelKey] }

// busy reports whether the Pod has a sandbox that has not ended.
func busy(p *corev1.Pod) bool {
	return phase(p) == v1alpha1.SandboxPhaseRunning || phase(p) == v1alpha1.SandboxPhaseStarting
}

func envName(e *v1alpha1.SandboxEnv) string { return e.Namespace + "/" + e.Name }

func envObject(e *v1alpha1.SandboxEnv) string { return "env " + envName(e) }

// fresh is the age up to which the hub considers the view of a cluster current.
const fresh = 15 * time.Second

// current reports whether the hub's view of a cluster should be accurate now.
func current(c *sandboxv1.Cluster) bool {
	switch c.GetState() {
	case sandboxv1.ClusterState_FRESH:
		return true
	case sandboxv1.ClusterState_DRAINING, sandboxv1.ClusterState_SUSPECT:
		return c.GetLastSeen() != nil && c.GetLastSeen().AsDuration() < fresh
	default:
		return false
	}
}

// forgotten returns a function that reports whether a cluster is not part of the federation. Without a hub to ask, the function returns
// false.
func (s *Snapshot) forgotten() func(cluster string) bool {
	if s.Hub == nil {
		return func(string) bool { return false }
	}
	registered := s.Hub.registered()
	return func(cluster string) bool { return registered[cluster] == nil }
}

// registered are the hub's clusters by id.
func (h *Hub) registered() map[string]*sandboxv1.Cluster {
	out := make(map[string]*sandboxv1.Cluster, len(h.Clusters))
	for _, c := range h.Clusters {
		out[c.GetId()] = c
	}
	return out
}

// Leads reports whether a worker holds the cluster's lease, as far as this can be determined.
func (c *Cluster) Leads() bool {
	return c.Lease != nil && c.Lease.Holder != "" && (c.Lease.Age == nil || *c.Lease.Age <= c.Lease.Duration+LeaseSlack)
}

// LeaseSlack allows for two roundings to whole seconds in times of API servers, and for a slow write.
const LeaseSlack = 5 * time.Second
