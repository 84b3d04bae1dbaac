// SPDX-License-Identifier: Apache-2.0

package allotments

import (
	"cmp"
	"maps"
	"slices"
)

// keeper is a cluster that can keep at most so many.
type keeper struct {
	cluster string
	most    int32
}

// replace takes over the minReplicas of a group, and which clusters have to be replaced by the others: those that are lost, until they are
// back and hold their floor.
func (b Book) replace(seen map[string]Holding, lost func(cluster string) bool) Book {
	b = b.Clone()
	b.Min = b.least(seen)
	for cluster, s := range b.Shares {
		h, heard := seen[cluster]
		behind := s.Replaced && (!heard || h.Held < s.Floor)
		s.Replaced = b.Min > 0 && (h.Present || !heard) && (lost != nil && lost(cluster) || behind)
		b.Shares[cluster] = s
	}
	return b
}

// least returns the largest minReplicas of the clusters that respond; without any, what it was.
func (b Book) least(seen map[string]Holding) (least int32) {
	told := false
	for _, h := range seen {
		if h.Present {
			told, least = true, max(least, h.Min)
		}
	}
	if !told {
		return b.Min
	}
	return least
}

// floors divides the minReplicas of a group over its clusters: to each an equal part, but not more than most says. What a cluster that is
// replaced keeps, the others keep as well.
func (b Book) floors(seen map[string]Holding, most func(s Share) int32) map[string]int32 {
	if b.Min == 0 {
		return nil
	}
	var all, serving []keeper
	for _, cluster := range slices.Sorted(maps.Keys(b.Shares)) {
		k := keeper{cluster, most(b.Shares[cluster])}
		if h, heard := seen[cluster]; heard {
			if !h.Present {
				continue
			}
			k.most = min(k.most, h.Min) // no cluster's word makes another keep more than its own Env asks for
		}
		if all = append(all, k); !b.Shares[cluster].Replaced {
			serving = append(serving, k)
		}
	}
	out := spread(b.Min, all)
	maps.Copy(out, spread(b.Min, serving))
	return out
}

// spread divides n into equal parts, none larger than its keeper's most. Of what does not divide evenly the first keepers get one each.
func spread(n int32, keepers []keeper) map[string]int32 {
	level, left := int32(0), n
	byMost := slices.SortedFunc(slices.Values(keepers), func(a, b keeper) int { return cmp.Compare(a.most, b.most) })
	for i, k := range byMost {
		each := left / int32(len(byMost)-i)
		if level = each; k.most > each {
			break
		}
		level, left = k.most, left-k.most
	}
	out := make(map[string]int32, len(keepers))
	left = n
	for _, k := range keepers {
		out[k.cluster] = min(k.most, level)
		left -= out[k.cluster]
	}
	for _, k := range keepers {
		if left > 0 && k.most > out[k.cluster] {
			out[k.cluster]++
			left--
		}
	}
	return out
}
