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

// Most bounds what a cluster can say that it holds or needs.
const Most = 1_000_000

// Holding is what a cluster says of a group.
type Holding struct {
	// Present: the cluster has the group, and it has a maxReplicas. Otherwise it holds nothing that counts.
	Present bool
	// Max is the group's maxReplicas there.
	Max int32
	// Min is the group's minReplicas there.
	Min int32
	// Held is what it holds.
	Held int32
	// Demand is what it would have to hold for the claims and floors that it has, without a part of minReplicas that it was told.
	Demand int32
}

// Book is what the hub keeps of a group.
type Book struct {
	// Max is the maxReplicas that was divided last.
	Max int32 `json:"max"`
	// Min is the minReplicas that was divided last.
	Min    int32            `json:"min,omitempty"`
	Shares map[string]Share `json:"shares,omitempty"` // by cluster
	Lost   []Lost           `json:"lost,omitempty"`
}

// Share is one cluster's part.
type Share struct {
	// UID is the cluster's kube-system uid.
	UID  string `json:"uid"`
	Room int32  `json:"room"`
	// Most is what the cluster may hold: never less than Room.
	Most int32 `json:"most"`
	// Floor is what the cluster keeps of minReplicas: never more than Room.
	Floor int32 `json:"floor,omitempty"`
	// Replaced: the cluster gets no claims, or does not hold its floor again yet. The others keep that as well.
	Replaced bool `json:"replaced,omitempty"`
}

// Lost is the part of a cluster that was forgotten.
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

// Empty reports whether no cluster has a part.
func (b Book) Empty() bool { return len(b.Shares) == 0 && len(b.Lost) == 0 }

// Sums returns the sum of the rooms, and of what clusters may hold.
func (b Book) Sums() (rooms, most int64) {
	for _, s := range b.Shares {
		rooms, most = rooms+int64(s.Room), most+int64(s.Most)
	}
	for _, l := range b.Lost {
		most += int64(l.Most)
	}
	return rooms, most
}

// Confirm takes what a cluster says of a group while the room that it was sent holds there.
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

// Settle compares the shares with the clusters that are registered, by name: the kube-system uid. What a forgotten cluster may hold is
// lost; a cluster that is back has it again.
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

// Reclaim gives up what forgotten clusters of a name may hold.
func (b Book) Reclaim(cluster string) Book {
	if !slices.ContainsFunc(b.Lost, func(l Lost) bool { return l.Cluster == cluster }) {
		return b
	}
	b = b.Clone()
	b.Lost = slices.DeleteFunc(b.Lost, func(l Lost) bool { return l.Cluster == cluster })
	return b
}
