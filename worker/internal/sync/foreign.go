// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

// view is what the hub has told of one Env. A nil segment is one that the hub says is gone.
type view map[string]*foreignSegment

type foreignSegment struct {
	stale      bool
	receivedAt time.Time
	members    []segment.Member
}

// foreign is what the hub has told this process. Nothing is forgotten when the hub goes away: a hub that comes back tells
// everything again before anything is dropped.
type foreign struct {
	envs map[segment.Key]view
	// known are the clusters of which the hub has told everything: what it did not name does not exist.
	known map[string]struct{}
	// heard are the clusters that this connection has told of.
	heard map[string]struct{}
	// synced says that this connection's first complete message has arrived.
	synced bool

	assembly []*federationv1.Foreign
}

func newForeign() *foreign {
	return &foreign{envs: map[segment.Key]view{}, known: map[string]struct{}{}, heard: map[string]struct{}{}}
}

// disconnected drops half a message. What was told is kept.
func (f *foreign) disconnected() {
	f.assembly, f.synced = nil, false
	clear(f.heard)
}

// receive takes one message and returns the Envs of which something is different now. A complete message counts when all
// of its chunks are there.
func (f *foreign) receive(m *federationv1.Foreign, now time.Time) (changed map[segment.Key]struct{}) {
	changed = map[segment.Key]struct{}{}
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

// replace makes a complete message all there is of the clusters that it knows.
func (f *foreign) replace(chunks []*federationv1.Foreign, now time.Time, changed map[segment.Key]struct{}) {
	speaksOf := map[string]struct{}{}
	for _, id := range chunks[0].GetKnown() {
		speaksOf[id] = struct{}{}
		f.known[id], f.heard[id] = struct{}{}, struct{}{}
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
				delete(v, id) // the cluster is known, so that it is gone is known as well
				changed[k] = struct{}{}
			}
		}
		f.tidy(k)
	}
	for _, chunk := range chunks {
		f.merge(chunk, now, changed)
	}
}

func (f *foreign) merge(m *federationv1.Foreign, now time.Time, changed map[segment.Key]struct{}) {
	for _, env := range m.GetEnvs() {
		k := keyOf(env)
		v := f.envs[k]
		if v == nil {
			v = view{}
			f.envs[k] = v
		}
		for _, s := range env.GetSegments() {
			members := make([]segment.Member, 0, len(s.GetMembers()))
			for _, p := range s.GetMembers() {
				members = append(members, segment.MemberFromProto(p))
			}
			f.heard[s.GetClusterId()] = struct{}{}
			v[s.GetClusterId()] = &foreignSegment{stale: s.GetStale(), receivedAt: now, members: members}
		}
		for _, id := range env.GetRemoved() {
			if _, known := f.known[id]; known {
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

// forget drops an Env that the cluster has not had for a while. If it comes back, the hub tells of it again.
func (f *foreign) forget(k segment.Key) { delete(f.envs, k) }

func keyOf(env *federationv1.ForeignEnv) segment.Key {
	return segment.Key{Namespace: env.GetKey().GetNamespace(), Name: env.GetKey().GetName()}
}
