// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/segment"
)

// part is one cluster's segment in one Env. The Env's slot and the cluster's holdings share it, so that a report needs at most one lookup
// for an Env, and mostly none.
type part struct {
	owner *cluster
	slot  *slot
	// segment is written with both the owner's mu and the slot's mu held, so a reader needs only one of them.
	segment *segment.Segment

	digest uint64 // of segment
	named  uint32 // the last report that named it
	at     int32  // its index in the holdings
	first  int32  // index of its members in the slot's view
	size   uint16 // of segment, as segment.Size counts; a wider type would cost 16 bytes more for each part
	noted  noted
}

// noted says whether all receivers that have the Env still wait for the part's current content. While they do, a further change needs no
// further note. The slot's mu guards it. The first receiver that reads the part clears it; because an extra note costs only a message.
type noted uint8

const (
	unnoted noted = iota
	notedCalm
	notedUrgent
)

// holdings are all parts of one cluster, guarded by the cluster's mu.
type holdings struct {
	parts   []*part // roughly in the order in which the cluster first reported them
	digest  uint64  // the sum of the digests of all parts, as in segment.Snapshot
	members int
	bytes   int    // the sum of all sizes
	reports uint32 // at ten a second they wrap around in 13 years
}

func (h *holdings) insert(p *part) {
	p.at = int32(len(h.parts))
	h.parts = append(h.parts, p)
}

func (h *holdings) drop(p *part) {
	last := h.parts[len(h.parts)-1]
	h.parts[p.at], last.at = last, p.at
	h.parts[len(h.parts)-1] = nil
	h.parts = h.parts[:len(h.parts)-1]
	h.digest -= p.digest
	h.members -= len(p.segment.Members())
	h.bytes -= int(p.size)
}

func (h *holdings) keys() []segment.Key {
	keys := make([]segment.Key, len(h.parts))
	for i, p := range h.parts {
		keys[i] = *p.slot.key
	}
	slices.SortFunc(keys, segment.Key.Compare)
	return keys
}

func (h *holdings) totals() segment.Totals {
	var t segment.Totals
	for _, p := range h.parts {
		t = t.Merge(p.segment.Totals())
	}
	return t
}

// unnamed lists the Envs that the last report omitted.
func (h *holdings) unnamed() (keys []segment.Key) {
	for _, p := range h.parts {
		if p.named != h.reports {
			keys = append(keys, *p.slot.key)
		}
	}
	return keys
}

// update is a whole parsed report; because a report counts in full or not at all. It omits invalid segments and those that exceed the
// budget. Such segments affect only the cluster that reports them.
type update struct {
	changed []change
	removed []*part
	refused refusals
}

type change struct {
	part    *part // nil: the cluster did not have the Env
	segment *segment.Segment
	size    int
}

// refusals are the segments of a report that do not count.
type refusals struct {
	number int
	first  error
}

func (r *refusals) add(err error) {
	r.number++
	r.first = cmp.Or(r.first, err)
}

var errTwice = errors.New("is named twice")

// read parses a report. If the report names an Env twice, or as both changed and removed, the whole report is invalid; because nothing
// shows which entry is later. Called with mu held.
func (c *cluster) read(segments []*federationv1.EnvSegment, removed []*federationv1.EnvKey) (update, error) {
	h := &c.holdings
	h.reports++
	u := update{changed: make([]change, 0, len(segments))}
	r := reader{cluster: c}
	room := room{limits: &c.fleet.limits, envs: len(h.parts), members: h.members, bytes: h.bytes}
	for _, k := range removed {
		p, _, err := r.find(k)
		switch {
		case errors.Is(err, errTwice):
			return update{}, err
		case err != nil:
			u.refused.add(err)
		case p != nil:
			u.removed = append(u.removed, p)
			room.free(p)
		}
	}
	for _, s := range segments {
		p, like, err := r.find(s.GetKey())
		if errors.Is(err, errTwice) {
			return update{}, err
		}
		if err != nil {
			u.refused.add(err)
			continue
		}
		next, size := like.Bare(), segment.Size(s)
		if read, err := segment.Update(s, like); err != nil {
			u.refused.add(err)
			size = segment.ItemSize
		} else {
			next = read
		}
		if err := room.take(p, len(next.Members()), size); err != nil {
			u.refused.add(fmt.Errorf("%s: %w", like.Key(), err))
			if p == nil {
				continue
			}
			next, size = like.Bare(), segment.ItemSize
			_ = room.take(p, 0, size) // this succeeds: the part takes no more room than before
		}
		u.changed = append(u.changed, change{p, next, size})
	}
	return u, nil
}

// reader finds the parts that a report names.
type reader struct {
	cluster *cluster
	next    int32                    // index of the part expected next, if the report keeps the order of the holdings
	others  map[segment.Key]struct{} // named, but not held
}

// find returns the part of an Env, or nil if the cluster does not have the Env. It also returns a segment whose strings the new one
// probably shares: the previous one, or else another cluster's.
func (r *reader) find(k *federationv1.EnvKey) (*part, *segment.Segment, error) {
	h := &r.cluster.holdings
	p, like, err := r.look(k)
	if err != nil {
		return nil, nil, err
	}
	var twice bool
	if p != nil {
		twice = p.named == h.reports
		p.named, r.next = h.reports, p.at+1
	} else {
		key := like.Key()
		_, twice = r.others[key]
		if r.others == nil {
			r.others = map[segment.Key]struct{}{}
		}
		r.others[key] = struct{}{}
	}
	if twice {
		return nil, nil, fmt.Errorf("%s: %w: %w", like.Key(), segment.ErrInvalid, errTwice)
	}
	return p, like, nil
}

// look finds a named part. It validates only keys that are not yet in the index.
func (r *reader) look(k *federationv1.EnvKey) (*part, *segment.Segment, error) {
	if parts := r.cluster.holdings.parts; int(r.next) < len(parts) && parts[r.next].slot.key.Is(k) {
		p := parts[r.next]
		return p, p.segment, nil
	}
	key := segment.Key{Namespace: k.GetNamespace(), Name: k.GetName()}
	if s := r.cluster.fleet.index.get(key); s != nil {
		if p, like := s.look(r.cluster); like != nil {
			return p, like, nil
		}
	}
	if err := key.Check(); err != nil {
		return nil, nil, err
	}
	return nil, segment.New(key.Intern()), nil
}
