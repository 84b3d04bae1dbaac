// SPDX-License-Identifier: Apache-2.0

package allotpolicy

import (
	"cmp"
	"maps"
	"slices"
)

// limited is a cluster that can keep at most `most` Pods.
type limited struct {
	cluster string
	most    int32
}

// replace updates the minReplicas of a group, and which clusters the others must replace: those that are lost, until they are back and hold
// their floor.
func (r Record) replace(seen map[string]Holding, lost func(cluster string) bool) Record {
	r = r.Clone()
	r.Min = r.least(seen)
	for cluster, s := range r.Shares {
		h, heard := seen[cluster]
		behind := s.Replaced && (!heard || h.Held < s.Floor)
		s.Replaced = r.Min > 0 && (h.Present || !heard) && (lost != nil && lost(cluster) || behind)
		r.Shares[cluster] = s
	}
	return r
}

// least returns the largest minReplicas of the clusters that respond. If none does, it returns the previous value.
func (r Record) least(seen map[string]Holding) (least int32) {
	told := false
	for _, h := range seen {
		if h.Present {
			told, least = true, max(least, h.Min)
		}
	}
	if !told {
		return r.Min
	}
	return least
}

// floors divides the minReplicas of a group equally among its clusters; most limits the part of each. The other clusters also keep the
// parts of replaced clusters.
func (r Record) floors(seen map[string]Holding, most func(s Share) int32) map[string]int32 {
	if r.Min == 0 {
		return nil
	}
	var all, serving []limited
	for _, cluster := range slices.Sorted(maps.Keys(r.Shares)) {
		c := limited{cluster, most(r.Shares[cluster])}
		if h, heard := seen[cluster]; heard {
			if !h.Present {
				continue
			}
			c.most = min(c.most, h.Min) // a cluster cannot make another keep more than the other's own Env asks for
		}
		if all = append(all, c); !r.Shares[cluster].Replaced {
			serving = append(serving, c)
		}
	}
	out := spread(r.Min, all)
	maps.Copy(out, spread(r.Min, serving))
	return out
}

// spread divides n into equal parts, each limited by its cluster's most. The first clusters get one more each if n does not divide evenly.
func spread(n int32, clusters []limited) map[string]int32 {
	level, left := int32(0), n
	byMost := slices.SortedFunc(slices.Values(clusters), func(a, b limited) int { return cmp.Compare(a.most, b.most) })
	for i, c := range byMost {
		each := left / int32(len(byMost)-i)
		if level = each; c.most > each {
			break
		}
		level, left = c.most, left-c.most
	}
	out := make(map[string]int32, len(clusters))
	left = n
	for _, c := range clusters {
		out[c.cluster] = min(c.most, level)
		left -= out[c.cluster]
	}
	for _, c := range clusters {
		if left > 0 && c.most > out[c.cluster] {
			out[c.cluster]++
			left--
		}
	}
	return out
}
