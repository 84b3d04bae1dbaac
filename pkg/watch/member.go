// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// member is a cluster of a topic.
type member struct {
	current bool      // its feed has told all that is there
	settled bool      // it was current once, or could not be
	silent  bool      // the cluster is away, whatever its feed says
	heard   time.Time // when it was last current, once it is not
	lost    time.Time // since when its sandboxes are as last heard; zero: they are not
	leave   context.CancelFunc
}

// note changes how a cluster is heard.
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

// set notes how far a cluster's feed is.
func (t *topic) set(m *member, current bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.current != current || !m.settled {
		m.note(t.service.clock.Now(), current, m.silent)
		m.settled = true
		t.tell()
	}
}

// recall notes sandboxes of a cluster that was not heard yet, as they were last known. Its feed replaces them.
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

// age returns how long ago a sandbox of a cluster that is away was heard, else nil. The caller holds the lock.
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

// away returns the named clusters whose sandboxes are not known as they are now, and whether each other one was heard. The caller holds
// the lock.
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
