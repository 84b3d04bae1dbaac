// SPDX-License-Identifier: Apache-2.0

package allotpolicy

import (
	"cmp"
	"slices"
)

// Others are the clusters that cannot be asked about a group now.
type Others struct {
	// Missing is the number of clusters that have members of the Env and no share yet. A part of the remainder is reserved for them.
	Missing int32
	// Unbound is what the clusters hold whose workers do not know rooms.
	Unbound int32
}

// part is a cluster whose room can be changed.
type part struct {
	cluster string
	Share
	Holding
	target int32
}

// Divide sets the rooms of the clusters that respond, and the part of minReplicas that each cluster keeps. seen are their latest reports,
// which must have been passed to Confirm. lost reports whether a cluster gets no claims, even if it responds; nil: every cluster gets
// claims.
func (r Record) Divide(seen map[string]Holding, others Others, lost func(cluster string) bool) Record {
	next := r.replace(seen, lost).rooms(seen, others)
	next.Min = min(next.Min, next.Max)
	floors := next.floors(seen, func(s Share) int32 { return s.Room })
	for cluster, s := range next.Shares {
		s.Floor = floors[cluster]
		next.Shares[cluster] = s
	}
	if next.Equal(r) {
		return r
	}
	return next
}

// rooms sets the rooms of the clusters that respond. It may modify the Record's shares.
func (r Record) rooms(seen map[string]Holding, others Others) Record {
	parts, limit, any := r.parts(seen)
	if !any {
		// No responding cluster has the group: take back the remaining rooms.
		limit = r.Max
	}
	free := int64(limit) - int64(others.Unbound)
	available := free
	for cluster, s := range r.Shares {
		free -= int64(s.Most)
		if _, asked := seen[cluster]; !asked {
			available -= int64(s.Most)
		}
	}
	for _, l := range r.Lost {
		free, available = free-int64(l.Most), available-int64(l.Most)
	}
	share(parts, max(0, available), others.Missing)
	if !needed(parts, available) {
		r.Max = limit
		return r
	}
	r.Max = limit
	for _, p := range parts {
		s := p.Share
		switch {
		case p.target < s.Room:
			s.Room = p.target
		case p.target > s.Room && free >= 0:
			s.Room = int32(min(int64(p.target), int64(s.Most)+free))
			s.Room = max(s.Room, p.Room)
			free -= int64(max(0, s.Room-s.Most))
			s.Most = max(s.Most, s.Room)
		}
		r.Shares[p.cluster] = s
	}
	return r
}

// parts returns the responding clusters that have a share, in order, and the smallest maxReplicas. The demand of each includes its part of
// minReplicas.
func (r Record) parts(seen map[string]Holding) (parts []*part, limit int32, any bool) {
	for cluster, h := range seen {
		if h.Present && (!any || h.Max < limit) {
			limit, any = h.Max, true
		}
		if s, has := r.Shares[cluster]; has {
			parts = append(parts, &part{cluster: cluster, Share: s, Holding: h})
		}
	}
	r.Min = min(r.Min, limit)
	floors := r.floors(seen, func(Share) int32 { return limit })
	for _, p := range parts {
		p.Demand = max(p.Demand, floors[p.cluster])
	}
	slices.SortFunc(parts, func(a, c *part) int { return cmp.Compare(a.cluster, c.cluster) })
	return parts, limit, any
}

// share sets the targets. Each cluster gets what it needs, or at most an equal part if the needs exceed what is available. The remainder is
// divided equally.
func share(parts []*part, available int64, missing int32) {
	needs := func(p *part) int64 {
		if !p.Present {
			return 0
		}
		return min(int64(max(0, p.Demand)), available)
	}
	order := slices.Clone(parts)
	slices.SortStableFunc(order, func(a, b *part) int { return cmp.Or(cmp.Compare(needs(a), needs(b)), cmp.Compare(a.Room, b.Room)) })
	left := available
	var present int64
	for i, p := range order {
		p.target = int32(min(needs(p), left/int64(len(order)-i)))
		left -= int64(p.target)
		if p.Present {
			present++
		}
	}
	if present == 0 {
		return
	}
	each, odd := left/(present+int64(missing)), left%(present+int64(missing))
	slices.SortStableFunc(order, func(a, b *part) int { return cmp.Compare(b.Room-b.target, a.Room-a.target) }) // keep existing rooms
	for _, p := range order {
		if !p.Present {
			continue
		}
		p.target += int32(each)
		if odd > 0 {
			p.target, odd = p.target+1, odd-1
		}
	}
}

// needed reports whether the rooms should be changed to their targets.
func needed(parts []*part, available int64) bool {
	var rooms, targets int64
	for _, p := range parts {
		rooms, targets = rooms+int64(p.Room), targets+int64(p.target)
		if p.Present && p.Demand > p.Room && p.target > p.Room || !p.Present && p.Room > 0 {
			return true
		}
	}
	return rooms > max(0, available) || rooms < targets
}
