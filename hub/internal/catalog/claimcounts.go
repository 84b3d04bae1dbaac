// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/segment"
)

const (
	claimCountStep  = 10 * time.Second
	claimCountSteps = 60     // steps that are kept: ten minutes
	maxClaimCounts  = 20_000 // pairs of Env and cluster; further ones are not counted
	// fewClaims is the number of claims from which a stage is judged.
	fewClaims = 5
)

// ClaimCounts count the claims that this replica of the hub has sent, by Env and cluster, over the last ten minutes.
type ClaimCounts struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	rows map[claimCountKey]*[claimCountSteps]claimCount
}

type claimCountKey struct {
	env     segment.Key
	cluster string
}

type claimCount struct {
	step         int64 // since the epoch
	sent, failed int32
}

// NewClaimCounts returns ClaimCounts without claims.
func NewClaimCounts(c clock.PassiveClock) *ClaimCounts {
	return &ClaimCounts{clock: c, rows: map[claimCountKey]*[claimCountSteps]claimCount{}}
}

func stepOf(t time.Time) int64 { return t.UnixNano() / int64(claimCountStep) }

// Sent counts a claim that was sent to a cluster.
func (f *ClaimCounts) Sent(env segment.Key, cluster string, ok bool) {
	now := stepOf(f.clock.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	key := claimCountKey{env, cluster}
	row := f.rows[key]
	if row == nil {
		if len(f.rows) >= maxClaimCounts {
			f.drop(now)
		}
		if len(f.rows) >= maxClaimCounts {
			return
		}
		row = &[claimCountSteps]claimCount{}
		f.rows[key] = row
	}
	one := &row[now%claimCountSteps]
	if one.step != now {
		*one = claimCount{step: now}
	}
	one.sent++
	if !ok {
		one.failed++
	}
}

// drop removes the rows without a claim in the last ten minutes. Called with the lock held.
func (f *ClaimCounts) drop(now int64) {
	for key, row := range f.rows {
		latest := int64(0)
		for _, one := range row {
			latest = max(latest, one.step)
		}
		if latest <= now-claimCountSteps {
			delete(f.rows, key)
		}
	}
}

// Since returns how many claims of an Env were sent to clusters after a time, within the last ten minutes, and how many of these failed.
func (f *ClaimCounts) Since(env segment.Key, clusters []string, since time.Time) (sent, failed int) {
	if f == nil {
		return 0, 0
	}
	from := max(stepOf(since)+1, stepOf(f.clock.Now())-claimCountSteps+1) // the step of since also has earlier claims
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cluster := range clusters {
		row := f.rows[claimCountKey{env, cluster}]
		if row == nil {
			continue
		}
		for _, one := range row {
			if one.step >= from {
				sent, failed = sent+int(one.sent), failed+int(one.failed)
			}
		}
	}
	return sent, failed
}
