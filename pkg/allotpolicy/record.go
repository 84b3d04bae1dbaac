// SPDX-License-Identifier: Apache-2.0

package allotpolicy

import (
	"cmp"
	"maps"
	"slices"
)

// Key names a scaling group of a federated Env.
type Key struct{ Namespace, Env, Group string }

// Compare orders keys.
func Compare(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Env, b.Env), cmp.Compare(a.Group, b.Group))
}

// Most is the upper limit of the numbers that a cluster may report.
const Most = 1_000_000

// Holding is a cluster's report about a group.
type Holding struct {
	// Present means that the cluster has the group, with a maxReplicas. Otherwise the cluster holds nothing that counts.
	Present bool
	// Max is the group's maxReplicas in the cluster.
	Max int32
	// Min is the group's minReplicas in the cluster.
	Min int32
	// Held is how many Pods the cluster holds.
	Held int32
	// Demand is how many Pods the cluster needs for its claims and floors. It does not include the part of minReplicas that the hub assigned
	// to it.
	Demand int32
}

// Record is what the hub stores about a group.
type Record struct {
	// Max is the maxReplicas at the last division.
	Max int32 `json:"max"`
	// Min is the minReplicas at the last division.
	Min    int32            `json:"min,omitempty"`
	Shares map[string]Share `json:"shares,omitempty"` // by cluster
	Lost   []Lost           `json:"lost,omitempty"`
}

// Share is the part of one cluster.
type Share struct {
	// UID is the cluster's kube-system uid.
	UID  string `json:"uid"`
	Room int32  `json:"room"`
	// Most is the maximum that the cluster may currently hold. It is never less than Room.
	Most int32 `json:"most"`
	// Floor is the cluster's part of minReplicas. It is never more than Room.
	Floor int32 `json:"floor,omitempty"`
	// Replaced means that the cluster gets no claims, or does not hold its floor again yet. The other clusters then keep its floor as well.
	Replaced bool `json:"replaced,omitempty"`
}

// Lost is the share of a forgotten cluster.
type Lost struct {
	Cluster string `json:"cluster"`
	UID     string `json:"uid"`
	Most    int32  `json:"most"`
}

// Clone copies a record.
func (r Record) Clone() Record {
	r.Shares, r.Lost = maps.Clone(r.Shares), slices.Clone(r.Lost)
	if r.Shares == nil {
		r.Shares = map[string]Share{}
	}
	return r
}

// Equal compares two records.
func (r Record) Equal(o Record) bool {
	return r.Max == o.Max && r.Min == o.Min && maps.Equal(r.Shares, o.Shares) && slices.Equal(r.Lost, o.Lost)
}

// Empty reports whether no cluster has a share.
func (r Record) Empty() bool { return len(r.Shares) == 0 && len(r.Lost) == 0 }

// Sums returns the sum of the rooms, and the sum of what clusters may hold.
func (r Record) Sums() (rooms, most int64) {
	for _, s := range r.Shares {
		rooms, most = rooms+int64(s.Room), most+int64(s.Most)
	}
	for _, l := range r.Lost {
		most += int64(l.Most)
	}
	return rooms, most
}

// Confirm records a cluster's report about a group. sent is the room under which the cluster made the report.
func (r Record) Confirm(cluster, uid string, sent int32, h Holding) Record {
	s, known := r.Shares[cluster]
	if !known && !h.Present {
		return r
	}
	if !h.Present {
		h.Held = 0
	}
	next := s
	next.Most = max(s.Most, h.Held)
	if !known {
		next.UID = uid
	}
	if sent == s.Room {
		next.Most = max(s.Room, h.Held)
	}
	if known && next == s && (h.Present || next.Most > 0) {
		return r
	}
	r = r.Clone()
	r.Shares[cluster] = next
	if !h.Present && next.Most == 0 {
		delete(r.Shares, cluster)
	}
	return r
}

// Settle compares the shares with the registered clusters, a map from name to kube-system uid. The share of a cluster that is no longer
// registered becomes lost. A cluster that is registered again gets its lost share back.
func (r Record) Settle(registered map[string]string) Record {
	if !r.unsettled(registered) {
		return r
	}
	r = r.Clone()
	for cluster, s := range r.Shares {
		if registered[cluster] != s.UID {
			delete(r.Shares, cluster)
			r.Lost = append(r.Lost, Lost{Cluster: cluster, UID: s.UID, Most: s.Most})
		}
	}
	r.Lost = slices.DeleteFunc(r.Lost, func(l Lost) bool {
		if l.UID != registered[l.Cluster] {
			return false
		}
		s := r.Shares[l.Cluster]
		s.UID, s.Most = l.UID, s.Most+l.Most
		r.Shares[l.Cluster] = s
		return true
	})
	slices.SortFunc(r.Lost, func(a, c Lost) int { return cmp.Or(cmp.Compare(a.Cluster, c.Cluster), cmp.Compare(a.UID, c.UID)) })
	return r
}

func (r Record) unsettled(registered map[string]string) bool {
	for cluster, s := range r.Shares {
		if registered[cluster] != s.UID {
			return true
		}
	}
	return slices.ContainsFunc(r.Lost, func(l Lost) bool { return registered[l.Cluster] == l.UID })
}

// Reclaim drops the lost shares of forgotten clusters with the given name.
func (r Record) Reclaim(cluster string) Record {
	if !slices.ContainsFunc(r.Lost, func(l Lost) bool { return l.Cluster == cluster }) {
		return r
	}
	r = r.Clone()
	r.Lost = slices.DeleteFunc(r.Lost, func(l Lost) bool { return l.Cluster == cluster })
	return r
}
