// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// member is a cluster in a topic.
type member struct {
	current bool      // its feed has delivered all existing sandboxes
	settled bool      // it was current once, or its feed has failed
	silent  bool      // the cluster is away, whatever its feed delivers
	heard   time.Time // when it was last current; set when it stops being current
	lost    time.Time // since when its sandboxes are stale; zero: they are not
	leave   context.CancelFunc
}

// note updates whether a cluster is current and whether it is silent.
func (m *member) note(now time.Time, current, silent bool) {
	if m.current && !m.silent {
		m.heard = now
	}
	m.current, m.silent = current, silent
	switch {
	case current && !silent:
		m.lost = time.Time{}
	case m.lost.IsZero():
		m.lost = now
	}
}

// setCurrent updates the state of a cluster's feed.
func (t *topic) setCurrent(m *member, current bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.current != current || !m.settled {
		m.note(t.service.clock.Now(), current, m.silent)
		m.settled = true
		t.tell()
	}
}

// recall adds the last known sandboxes of a cluster that has not been current yet. Its feed will replace them.
func (t *topic) recall(cluster string, all []Known) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[cluster]; m == nil || m.current || !m.heard.IsZero() {
		return
	}
	now := t.service.clock.Now()
	for _, one := range all {
		if t.items[one.Sandbox.GetId()] == nil && owns(cluster, one.Sandbox.GetId()) {
			t.place(cluster, one.Sandbox, now.Add(-one.Age), true)
		}
	}
}

// age returns the age of a sandbox whose cluster is away, or nil if the sandbox is up to date. The caller holds the lock.
func (t *topic) age(it *item) *durationpb.Duration {
	m := t.members[it.cluster]
	if it.gone || m == nil || m.lost.IsZero() || it.heard.After(m.lost) {
		return nil
	}
	heard := it.heard
	if m.heard.After(heard) {
		heard = m.heard
	}
	return durationpb.New(max(0, t.service.clock.Since(heard)).Round(time.Millisecond))
}

// away returns the selected clusters whose sandboxes may be stale, and whether every selected cluster is settled. The caller holds the
// lock.
func (t *topic) away(named func(cluster string) bool) (clusters []string, settled bool) {
	settled = t.listed
	for cluster, m := range t.members {
		if !named(cluster) {
			continue
		}
		settled = settled && m.settled
		if !m.current || m.silent {
			clusters = append(clusters, cluster)
		}
	}
	slices.Sort(clusters)
	return clusters, settled
}
