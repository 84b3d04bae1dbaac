// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/segment"
)

// view has the segments of one Env that the hub has reported. A nil segment was reported as gone.
type view map[string]*foreignSegment

type foreignSegment struct {
	stale      bool
	receivedAt time.Time
	members    []segment.Member
}

// foreign is the state that the hub has reported to this process. Nothing is dropped when the hub disconnects: after a reconnect, the hub
// reports everything again before anything is dropped.
type foreign struct {
	envs map[segment.Key]view
	// known are the clusters that the hub has reported completely. Segments that it did not name do not exist there.
	known map[string]struct{}
	// heard are the clusters that this connection has reported.
	heard map[string]struct{}
	// registered are the registered clusters that the hub has listed on this connection, or nil if unknown.
	registered map[string]struct{}
	// news are the clusters whose state, apart from segments, has changed since takeNews was last called.
	news news
	// synced is set when this connection's first complete message has arrived.
	synced bool

	assembly []*federationv1.Foreign

	// unusable counts the invalid parts of messages, which were dropped. lastUnusable is the last reason.
	unusable     int
	lastUnusable error
}

// news is a set of clusters, or all of them.
type news struct {
	all bool
	ids map[string]struct{}
}

func (n *news) add(id string) {
	if n.ids == nil {
		n.ids = map[string]struct{}{}
	}
	n.ids[id] = struct{}{}
}

// maxRegistered bounds the list of registered clusters: a longer one counts as unknown (I10).
const maxRegistered = 1 << 13

// maxChunks bounds a complete message, so that one that never ends is not kept (I10).
const maxChunks = 1024

func newForeign() *foreign {
	return &foreign{envs: map[segment.Key]view{}, known: map[string]struct{}{}, heard: map[string]struct{}{}}
}

// disconnected drops a partial message. Earlier messages stay.
func (f *foreign) disconnected() {
	f.assembly, f.synced, f.registered = nil, false, nil
	clear(f.heard)
}

// takeNews returns the news since the last call.
func (f *foreign) takeNews() news {
	n := f.news
	f.news = news{}
	return n
}

// enrol replaces the list of registered clusters. An empty list means that there are too many to list.
func (f *foreign) enrol(list *federationv1.Registered) {
	f.registered, f.news.all = nil, true
	switch n := len(list.GetClusters()); {
	case n == 0:
		return
	case n > maxRegistered:
		f.drop(fmt.Errorf("a list of %d registered clusters, want at most %d", n, maxRegistered))
		return
	}
	f.registered = make(map[string]struct{}, len(list.GetClusters()))
	for _, id := range list.GetClusters() {
		if err := checkCluster(id); err != nil {
			f.drop(err)
			continue
		}
		f.registered[id] = struct{}{}
	}
}

// hear records that this connection has reported about a cluster.
func (f *foreign) hear(id string) {
	if _, before := f.heard[id]; !before {
		f.heard[id] = struct{}{}
		f.news.add(id)
	}
}

// receive handles one message and returns the Envs that have changed. A complete message takes effect when all of its chunks have arrived.
func (f *foreign) receive(m *federationv1.Foreign, now time.Time) (changed map[segment.Key]struct{}) {
	changed = map[segment.Key]struct{}{}
	if m.GetRegistered() != nil {
		f.enrol(m.GetRegistered())
	}
	if !m.GetComplete() {
		f.merge(m, now, changed)
		return changed
	}
	if int(m.GetChunk()) != len(f.assembly) {
		f.assembly = nil
		if m.GetChunk() != 0 {
			return changed
		}
	}
	if len(f.assembly) == maxChunks {
		f.assembly = nil
		f.drop(fmt.Errorf("a complete message of more than %d chunks", maxChunks))
		return changed
	}
	f.assembly = append(f.assembly, m)
	if !m.GetLast() {
		return changed
	}
	whole := f.assembly
	f.assembly = nil
	f.replace(whole, now, changed)
	f.synced = true
	return changed
}

func (f *foreign) drop(why error) { f.unusable, f.lastUnusable = f.unusable+1, why }

// replace replaces the state of all clusters that a complete message covers.
func (f *foreign) replace(chunks []*federationv1.Foreign, now time.Time, changed map[segment.Key]struct{}) {
	speaksOf := map[string]struct{}{}
	for _, id := range chunks[0].GetKnown() {
		if err := checkCluster(id); err != nil {
			f.drop(err)
			continue
		}
		speaksOf[id] = struct{}{}
		f.known[id] = struct{}{}
		f.hear(id)
	}
	named := map[segment.Key]map[string]struct{}{}
	for _, chunk := range chunks {
		for _, env := range chunk.GetEnvs() {
			k := keyOf(env)
			if named[k] == nil {
				named[k] = map[string]struct{}{}
			}
			for _, s := range env.GetSegments() {
				named[k][s.GetClusterId()] = struct{}{}
			}
		}
	}
	for k, v := range f.envs {
		for id := range v {
			_, speaks := speaksOf[id]
			if _, there := named[k][id]; speaks && !there {
				delete(v, id) // the cluster is known, so the segment is known to be gone
				changed[k] = struct{}{}
			}
		}
		f.tidy(k)
	}
	for _, chunk := range chunks {
		f.merge(chunk, now, changed)
	}
}

// merge applies the valid parts of a message. Instead of an invalid part, the earlier state stays.
func (f *foreign) merge(m *federationv1.Foreign, now time.Time, changed map[segment.Key]struct{}) {
	for _, env := range m.GetEnvs() {
		k := keyOf(env)
		if err := k.Check(); err != nil {
			f.drop(err)
			continue
		}
		v := f.envs[k]
		if v == nil {
			v = view{}
			f.envs[k] = v
		}
		for _, s := range env.GetSegments() {
			members, err := segment.MembersFromProto(s.GetMembers())
			if err == nil {
				err = checkCluster(s.GetClusterId())
			}
			if err != nil {
				f.drop(fmt.Errorf("%s: %w", k, err))
				continue
			}
			f.hear(s.GetClusterId())
			v[s.GetClusterId()] = &foreignSegment{stale: s.GetStale(), receivedAt: now, members: members}
		}
		for _, id := range env.GetRemoved() {
			if err := checkCluster(id); err != nil {
				f.drop(fmt.Errorf("%s: %w", k, err))
			} else if _, known := f.known[id]; known {
				delete(v, id)
			} else {
				v[id] = nil
			}
		}
		changed[k] = struct{}{}
		f.tidy(k)
	}
}

func (f *foreign) tidy(k segment.Key) {
	if len(f.envs[k]) == 0 {
		delete(f.envs, k)
	}
}

// forget drops an Env that the cluster has not had for a while. If it comes back, the hub reports it again.
func (f *foreign) forget(k segment.Key) { delete(f.envs, k) }

func checkCluster(id string) error {
	if link.ValidClusterID(id) {
		return nil
	}
	return fmt.Errorf("%s is no ClusterID", segment.Quote(id))
}

func keyOf(env *federationv1.ForeignEnv) segment.Key {
	return segment.Key{Namespace: env.GetKey().GetNamespace(), Name: env.GetKey().GetName()}
}
