// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/segment"
)

const (
	figureStep = 10 * time.Second
	figures    = 60     // steps that are kept: ten minutes
	maxFigures = 20_000 // pairs of Env and cluster; further ones are not counted
	// fewClaims is the number of claims from which a stage is judged.
	fewClaims = 5
)

// Figures count the claims that this replica of the hub has sent, by Env and cluster, over the last ten minutes.
type Figures struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	rows map[figureKey]*[figures]figure
}

type figureKey struct {
	env     segment.Key
	cluster string
}

type figure struct {
	step         int64 // since the epoch
	sent, failed int32
}

// NewFigures returns Figures without claims.
func NewFigures(c clock.PassiveClock) *Figures {
	return &Figures{clock: c, rows: map[figureKey]*[figures]figure{}}
}

func stepOf(t time.Time) int64 { return t.UnixNano() / int64(figureStep) }

// Sent counts a claim that was sent to a cluster.
func (f *Figures) Sent(env segment.Key, cluster string, ok bool) {
	now := stepOf(f.clock.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	key := figureKey{env, cluster}
	row := f.rows[key]
	if row == nil {
		if len(f.rows) >= maxFigures {
			f.drop(now)
		}
		if len(f.rows) >= maxFigures {
			return
		}
		row = &[figures]figure{}
		f.rows[key] = row
	}
	one := &row[now%figures]
	if one.step != now {
		*one = figure{step: now}
	}
	one.sent++
	if !ok {
		one.failed++
	}
}

// drop removes the rows without a claim in the last ten minutes. Called with the lock held.
func (f *Figures) drop(now int64) {
	for key, row := range f.rows {
		latest := int64(0)
		for _, one := range row {
			latest = max(latest, one.step)
		}
		if latest <= now-figures {
			delete(f.rows, key)
		}
	}
}

// Since returns how many claims of an Env were sent to clusters after a time, within the last ten minutes, and how many of these failed.
func (f *Figures) Since(env segment.Key, clusters []string, since time.Time) (sent, failed int) {
	if f == nil {
		return 0, 0
	}
	from := max(stepOf(since)+1, stepOf(f.clock.Now())-figures+1) // the step of since also has earlier claims
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cluster := range clusters {
		row := f.rows[figureKey{env, cluster}]
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
