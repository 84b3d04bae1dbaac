// SPDX-License-Identifier: Apache-2.0

package problem

import "strings"

// Nearest returns the name that is most similar to a wrong one, or "" if none is similar.
func Nearest(wrong string, names []string) string {
	wrong = strings.ToLower(wrong)
	best, least := "", (len(wrong)+2)/3+1
	for _, name := range names {
		lower := strings.ToLower(name)
		distance := edits(wrong, lower)
		if len(wrong) > 2 && strings.Contains(lower, wrong) || len(lower) > 2 && strings.HasPrefix(wrong, lower) {
			distance = min(distance, 1) // such as cluster in clusterId, or env in environment
		}
		if distance < least {
			best, least = name, distance
		}
	}
	return best
}

// maxCompared bounds the work for a name that a caller sent.
const maxCompared = 64

// edits returns the minimum number of insertions, deletions, changes and swaps of adjacent bytes that turn a into b.
func edits(a, b string) int {
	if len(a) > maxCompared || len(b) > maxCompared {
		return maxCompared
	}
	var before []int // the row before the last
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := row[j]
			if a[i] != b[j] {
				cost++
			}
			next[j+1] = min(cost, next[j]+1, row[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
