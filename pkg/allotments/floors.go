// SPDX-License-Identifier: Apache-2.0

package allotments

import (
	"cmp"
	"maps"
	"slices"
)

// keeper is a cluster that can keep at most `most` Pods.
type keeper struct {
	cluster string
	most    int32
}

// replace updates the minReplicas of a group, and which clusters the others must replace: those that are lost, until they are back and hold
// their floor.
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

// least returns the largest minReplicas of the clusters that respond. If none does, it returns the previous value.
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

// floors divides the minReplicas of a group equally among its clusters; most limits the part of each. The other clusters also keep the
// parts of replaced clusters.
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
			k.most = min(k.most, h.Min) // a cluster cannot make another keep more than the other's own Env asks for
		}
		if all = append(all, k); !b.Shares[cluster].Replaced {
			serving = append(serving, k)
		}
	}
	out := spread(b.Min, all)
	maps.Copy(out, spread(b.Min, serving))
	return out
}

// spread divides n into equal parts, each limited by its keeper's most. The first keepers get one more each if n does not divide evenly.
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
