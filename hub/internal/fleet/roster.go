// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

// rosterLimit bounds the list of registered clusters in a message, so that a full message with the list still fits into a frame. A longer
// list is not sent, and then no worker reports that a cluster is not registered.
const rosterLimit = 48 << 10

// roster is the list of registered clusters that streams send. It is immutable; because streams compare pointers.
type roster struct {
	ids     []string
	message *federationv1.Registered
}

func newRoster(ids []string) *roster {
	r, size := &roster{ids: ids}, 0
	for _, id := range ids {
		size += len(id) + 2
	}
	if r.message = (&federationv1.Registered{}); size <= rosterLimit {
		r.message.Clusters = ids
	}
	return r
}

// enrol updates the list of registered clusters, and wakes all streams if it has changed. It takes the lock of every cluster in turn.
// Callers hold none of them.
func (f *Fleet) enrol() {
	f.enrolling.Lock()
	defer f.enrolling.Unlock()
	ids := f.ClusterIDs()
	if was := f.roster.Load(); was != nil && slices.Equal(was.ids, ids) {
		return
	}
	f.roster.Store(newRoster(ids))
	for _, c := range f.sorted() {
		if s := c.session.Load(); s != nil {
			s.outbox.wake.give()
		}
	}
}

// withRoster adds the list of registered clusters to a message unless the stream has already sent this list.
func (s *Session) withRoster(m *federationv1.Foreign) *federationv1.Foreign {
	if r := s.cluster.fleet.roster.Load(); s.feed.roster != r {
		s.feed.roster, s.feed.rosterAt = r, s.cluster.fleet.now()
		m.Registered = r.message
	}
	return m
}

// Unserved lists the clusters that an Env names in its members but that do not serve it, as unserved does.
func (f *Fleet) Unserved(key segment.Key) (missing, without []string) {
	slot := f.index.get(key)
	if slot == nil {
		return nil, nil
	}
	return f.unserved(slot.snapshot())
}

// unserved lists the clusters that an Env names in its members but that do not serve it. missing are not registered; without are registered
// and do not have the Env. A cluster whose reports are incomplete here is in neither list.
func (f *Fleet) unserved(parts []shown) (missing, without []string) {
	lists, seen := map[string]struct{}{}, map[string]struct{}{}
	for _, p := range parts {
		seen[p.owner.ID] = struct{}{}
		if named := p.segment.Defaults.Get().Named; named != "" {
			lists[named] = struct{}{}
		}
	}
	for list := range lists {
		for id := range strings.SplitSeq(list, ",") {
			if _, again := seen[id]; again {
				continue
			}
			seen[id] = struct{}{}
			switch c := f.cluster(id); {
			case c == nil || f.Registration(id) == "":
				missing = append(missing, id)
			case c.known.Load() && c.degradation() == "":
				without = append(without, id)
			}
		}
	}
	slices.Sort(missing)
	slices.Sort(without)
	return missing, without
}
