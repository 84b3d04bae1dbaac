// SPDX-License-Identifier: Apache-2.0

package allotments

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

// Book is the hub's record of a group.
type Book struct {
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

// Clone copies a book.
func (b Book) Clone() Book {
	b.Shares, b.Lost = maps.Clone(b.Shares), slices.Clone(b.Lost)
	if b.Shares == nil {
		b.Shares = map[string]Share{}
	}
	return b
}

// Equal compares two books.
func (b Book) Equal(o Book) bool {
	return b.Max == o.Max && b.Min == o.Min && maps.Equal(b.Shares, o.Shares) && slices.Equal(b.Lost, o.Lost)
}

// Empty reports whether no cluster has a share.
func (b Book) Empty() bool { return len(b.Shares) == 0 && len(b.Lost) == 0 }

// Sums returns the sum of the rooms, and the sum of what clusters may hold.
func (b Book) Sums() (rooms, most int64) {
	for _, s := range b.Shares {
		rooms, most = rooms+int64(s.Room), most+int64(s.Most)
	}
	for _, l := range b.Lost {
		most += int64(l.Most)
	}
	return rooms, most
}

// Confirm records a cluster's report about a group. sent is the room under which the cluster made the report.
func (b Book) Confirm(cluster, uid string, sent int32, h Holding) Book {
	s, known := b.Shares[cluster]
	if !known && !h.Present {
		return b
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
		return b
	}
	b = b.Clone()
	b.Shares[cluster] = next
	if !h.Present && next.Most == 0 {
		delete(b.Shares, cluster)
	}
	return b
}

// Settle compares the shares with the registered clusters, a map from name to kube-system uid. The share of a cluster that is no longer
// registered becomes lost. A cluster that is registered again gets its lost share back.
func (b Book) Settle(registered map[string]string) Book {
	if !b.unsettled(registered) {
		return b
	}
	b = b.Clone()
	for cluster, s := range b.Shares {
		if registered[cluster] != s.UID {
			delete(b.Shares, cluster)
			b.Lost = append(b.Lost, Lost{Cluster: cluster, UID: s.UID, Most: s.Most})
		}
	}
	b.Lost = slices.DeleteFunc(b.Lost, func(l Lost) bool {
		if l.UID != registered[l.Cluster] {
			return false
		}
		s := b.Shares[l.Cluster]
		s.UID, s.Most = l.UID, s.Most+l.Most
		b.Shares[l.Cluster] = s
		return true
	})
	slices.SortFunc(b.Lost, func(a, c Lost) int { return cmp.Or(cmp.Compare(a.Cluster, c.Cluster), cmp.Compare(a.UID, c.UID)) })
	return b
}

func (b Book) unsettled(registered map[string]string) bool {
	for cluster, s := range b.Shares {
		if registered[cluster] != s.UID {
			return true
		}
	}
	return slices.ContainsFunc(b.Lost, func(l Lost) bool { return registered[l.Cluster] == l.UID })
}

// Reclaim drops the lost shares of forgotten clusters with the given name.
func (b Book) Reclaim(cluster string) Book {
	if !slices.ContainsFunc(b.Lost, func(l Lost) bool { return l.Cluster == cluster }) {
		return b
	}
	b = b.Clone()
	b.Lost = slices.DeleteFunc(b.Lost, func(l Lost) bool { return l.Cluster == cluster })
	return b
}
