// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
)

// promptly bounds the time of a hub's response from memory, even if clusters are in trouble.
const promptly = 2 * time.Second

// troubleStaysWhereItIs checks that a cluster whose worker lives is fresh, whatever happens to other clusters.
func troubleStaysWhereItIs(s *Snapshot) []Finding {
	if s.Hub == nil {
		return nil
	}
	var found []Finding
	wrong := func(cluster, object, identity, wrong, expected string) {
		found = append(found, Finding{Invariant: "I7", Cluster: cluster, Object: object, Wrong: wrong, Expected: expected, passing: true,
			identity: identity})
	}
	registered := s.Hub.registered()
	for i := range s.Clusters {
		c := &s.Clusters[i]
		if shown := registered[c.ID]; shown != nil && away(shown) && c.Leads() {
			wrong(c.ID, "cluster "+c.ID, "away", fmt.Sprintf("is %s at the hub (%s), though its worker leads", shown.GetState(), shown.GetMessage()),
				"it to be heard, unless the network between is cut")
		}
	}
	for _, c := range s.Hub.Clusters {
		if c.GetState() == sandboxv1.ClusterState_FRESH && slices.Contains(s.Hub.Silent, c.GetId()) {
			wrong(c.GetId(), "cluster "+c.GetId(), "silent", "is FRESH, and did not list its sandboxes in time", "a response")
		}
	}
	for _, e := range s.Hub.Envs {
		for _, c := range e.GetClusters() {
			if age := c.GetAge().AsDuration(); c.GetState() == sandboxv1.ClusterState_FRESH && age > fresh {
				wrong(c.GetClusterId(), "env "+e.GetNamespace()+"/"+e.GetName(), "old",
					fmt.Sprintf("the cluster is FRESH, its part %s old", age.Round(time.Second)), "at most "+fresh.String())
			}
		}
	}
	if s.Hub.Slowest > promptly {
		wrong(hubName, "hub", "slow", fmt.Sprintf("took %s for what it has in memory", s.Hub.Slowest.Round(time.Millisecond)),
			"less than "+promptly.String())
	}
	return append(found, calledStale(s, registered)...)
}

// away reports whether a cluster gets fewer claims than it could serve, because the hub does not hear from it.
func away(c *sandboxv1.Cluster) bool {
	return c.GetState() == sandboxv1.ClusterState_SUSPECT || c.GetState() == sandboxv1.ClusterState_UNREACHABLE
}

// calledStale finds Envs that report a cluster as stale although the hub hears from it.
func calledStale(s *Snapshot, registered map[string]*sandboxv1.Cluster) []Finding {
	var found []Finding
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Envs {
			e := &c.Envs[j]
			federated := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.SandboxEnvConditionFederated)
			if federated == nil || federated.Reason != string(v1alpha1.ReasonClustersStale) || !current(registered[c.ID]) {
				continue
			}
			_, names, _ := strings.Cut(federated.Message, ": ")
			names, _, _ = strings.Cut(names, ";") // the gaps of the Env follow
			if slices.ContainsFunc(strings.Split(names, ", "), func(id string) bool { return !current(registered[id]) }) {
				continue
			}
			found = append(found, Finding{Invariant: "I7", Cluster: c.ID, Object: envObject(e), passing: true,
				Wrong: "Federated says: " + federated.Message, Expected: "InSync: the hub hears all of them"})
		}
	}
	return found
}

// clustersServe checks that each cluster has a leading worker, with or without a hub.
func clustersServe(s *Snapshot) []Finding {
	var found []Finding
	for i := range s.Clusters {
		c := &s.Clusters[i]
		f := Finding{Invariant: "I8", Cluster: c.ID, Object: "lease " + leaseName, Expected: "a worker to hold it: no claims are served here",
			passing: true}
		switch {
		case c.Leads():
			continue
		case c.Lease == nil:
			f.Wrong = "there is none"
		case c.Lease.Holder == "":
			f.Wrong = "no one holds it"
		default:
			f.Wrong = fmt.Sprintf("%s has not renewed it for longer than its %s", c.Lease.Holder, c.Lease.Duration)
		}
		found = append(found, f)
	}
	return found
}

// skewed is the smallest clock difference that is reported. Servers report whole seconds.
const skewed = 5 * time.Second

// written is how far a time on a Pod may be ahead of the API server's. A worker extrapolates from its last response, which may have been in
// transit for a long time.
const written = time.Minute

// clocksDecideNothing checks that durations come from one clock, and persisted times from the API server's.
func clocksDecideNothing(s *Snapshot) []Finding {
	var found []Finding
	for i := range s.Clusters {
		c := &s.Clusters[i]
		for j := range c.Pods {
			p := &c.Pods[j]
			for _, key := range []string{v1alpha1.SandboxClaimedAtAnnotationKey, v1alpha1.SandboxStartedAtAnnotationKey,
				v1alpha1.SandboxTerminatedAtAnnotationKey} {
				at, err := time.Parse(time.RFC3339, p.Annotations[key])
				if err != nil {
					continue
				}
				early, late := at.Before(p.CreationTimestamp.Add(-written)), !c.Clock.Now.IsZero() && at.After(c.Clock.Now.Add(written))
				if early || late {
					found = append(found, Finding{Invariant: "I11", Cluster: c.ID, Object: podName(p),
						Wrong: fmt.Sprintf("%s is %s", key, p.Annotations[key]),
						Expected: fmt.Sprintf("a time between the Pod's creation at %s and the API server's now",
							p.CreationTimestamp.UTC().Format(time.RFC3339))})
				}
			}
		}
	}
	if s.Hub == nil {
		return found
	}
	for _, c := range s.Hub.Clusters {
		seen := c.GetLastSeen().AsDuration()
		f := Finding{Invariant: "I11", Cluster: c.GetId(), Object: "cluster " + c.GetId(), passing: true, identity: "last heard"}
		switch {
		case c.GetLastSeen() == nil:
			continue
		case c.GetState() == sandboxv1.ClusterState_FRESH && seen > fresh:
			f.Wrong, f.Expected = fmt.Sprintf("is FRESH, last heard %s ago", seen.Round(time.Second)), "SUSPECT after "+fresh.String()
		case seen < 0:
			f.Wrong, f.Expected = fmt.Sprintf("was last heard in %s", -seen), "a time in the past, by the hub's monotonic clock"
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}

// Notes returns observations that violate no invariant: clock differences, and parts that were not read.
func Notes(s *Snapshot) []string {
	var notes []string
	clock := func(of string, c Clock) {
		if d := c.Offset.Round(time.Second); !c.Now.IsZero() && d.Abs() > skewed {
			notes = append(notes, fmt.Sprintf("the clock of %s is %s %s this machine's; no decision may depend on it (I11)", of, d.Abs(),
				aheadOf(d)))
		}
	}
	for i := range s.Clusters {
		clock(s.Clusters[i].ID, s.Clusters[i].Clock)
	}
	if s.Hub != nil {
		clock("the hub", s.Hub.Clock)
		looked, registered := map[string]bool{}, s.Hub.registered()
		for i := range s.Clusters {
			id := s.Clusters[i].ID
			looked[id] = true
			if registered[id] == nil {
				notes = append(notes, "cluster "+id+" was looked at and is not registered; what others say of it is not checked")
			}
		}
		for _, c := range s.Hub.Clusters {
			if !looked[c.GetId()] && len(s.Clusters) > 0 {
				notes = append(notes, "cluster "+c.GetId()+" is registered and was not looked at; what others say of it is not checked")
			}
			switch {
			case !current(c):
				notes = append(notes, fmt.Sprintf("cluster %s is %s (%s); what is known of it is not compared", c.GetId(), c.GetState(),
					c.GetMessage()))
			case c.GetState() != sandboxv1.ClusterState_FRESH:
				notes = append(notes, fmt.Sprintf("cluster %s is %s (%s)", c.GetId(), c.GetState(), c.GetMessage()))
			}
		}
	}
	switch {
	case s.Hub == nil && !s.hubLost():
		notes = append(notes, "no hub was looked at: I5, I7, I12 and the merged view of I4 are not checked")
	case len(s.Clusters) == 0:
		notes = append(notes, "no cluster was looked at: of most invariants nothing can be seen")
	}
	if len(s.Programs) == 0 {
		notes = append(notes, "no metrics were read: I10 is not checked")
	}
	return notes
}

func aheadOf(d time.Duration) string {
	if d < 0 {
		return "behind"
	}
	return "ahead of"
}

// identitiesAreBound checks that a name belongs to one cluster, and that a cluster has one name.
func identitiesAreBound(s *Snapshot) []Finding {
	if s.Hub == nil {
		return nil
	}
	var found []Finding
	wrong := func(c *sandboxv1.Cluster, wrong, expected string) {
		found = append(found, Finding{Invariant: "I12", Cluster: c.GetId(), Object: "cluster " + c.GetId(), Wrong: wrong, Expected: expected})
	}
	looked := map[string]*Cluster{}
	for i := range s.Clusters {
		looked[s.Clusters[i].ID] = &s.Clusters[i]
	}
	first := map[string]string{}
	for _, c := range s.Hub.Clusters {
		if other, twice := first[c.GetUid()]; twice && c.GetUid() != "" {
			wrong(c, "has the kube-system uid of "+other, "one name a cluster; the one is a copy of the other, or has two workers")
		}
		first[c.GetUid()] = c.GetId()
		if c.GetState() == sandboxv1.ClusterState_QUARANTINED {
			wrong(c, "is quarantined: "+c.GetMessage(), "one cluster under this name")
		}
		own := looked[c.GetId()]
		if own == nil {
			continue
		}
		if c.GetUid() != "" && own.UID != "" && c.GetUid() != own.UID {
			wrong(c, "the hub knows it by uid "+c.GetUid(), own.UID+", which is its kube-system's; another cluster has the name")
		}
		if own.Incarnation > 0 && c.GetIncarnation() > own.Incarnation {
			found = append(found, Finding{Invariant: "I12", Cluster: c.GetId(), Object: "cluster " + c.GetId(), passing: true,
				Wrong:    fmt.Sprintf("reports under incarnation %d, the highest persisted there is %d", c.GetIncarnation(), own.Incarnation),
				Expected: "an incarnation that this cluster wrote down; was its etcd restored?"})
		}
	}
	return found
}
