// SPDX-License-Identifier: Apache-2.0

package allotpolicy

import "maps"

// Division is the state of the leading hub. Each Change must be stored before Apply, and before any call that depends on it is sent. A
// Division is not safe for concurrent use.
type Division struct {
	// Epoch is the epoch of the leader.
	Epoch uint64
	// Warm means that clusters had time to report. Nothing is divided before that, so that the first cluster to report does not get
	// everything.
	Warm bool
	// Others returns what is known of clusters that have not reported; nil: nothing.
	Others func(k Key, answered func(cluster string) bool) Others
	// Lost reports whether a cluster gets no claims, even if it responds; nil: every cluster gets claims.
	Lost func(cluster string) bool

	number    uint64
	records   map[Key]Record
	addressed map[string]uint64 // incarnation of each cluster to which rooms may be sent
	said      map[string]*Reply
}

// Change is what must be stored.
type Change struct {
	// Records are the changed records; an empty record must be deleted.
	Records map[Key]Record
	// Addressed are the incarnations to which rooms may be sent from now on.
	Addressed map[string]uint64
}

// None reports whether there is nothing to store.
func (c Change) None() bool { return len(c.Records)+len(c.Addressed) == 0 }

// NewDivision returns a Division with the stored state.
func NewDivision(epoch uint64, records map[Key]Record, addressed map[string]uint64) *Division {
	return &Division{Epoch: epoch, records: maps.Clone(records), addressed: maps.Clone(addressed), said: map[string]*Reply{}}
}

// Apply applies a change that was stored.
func (d *Division) Apply(c Change) {
	for k, r := range c.Records {
		if r.Empty() {
			delete(d.records, k)
		} else {
			d.records[k] = r
		}
	}
	maps.Copy(d.addressed, c.Addressed)
}

// Address returns the change that must be stored before rooms are sent to an incarnation.
func (d *Division) Address(cluster string, incarnation uint64) Change {
	if d.addressed[cluster] == incarnation {
		return Change{}
	}
	return Change{Addressed: map[string]uint64{cluster: incarnation}}
}

// Call returns the rooms of a cluster, to be sent to its addressed incarnation. A cluster must have only one call at a time.
func (d *Division) Call(cluster string) Call {
	d.number++
	out := Call{Epoch: d.Epoch, Number: d.number, Incarnation: d.addressed[cluster], Rooms: map[Key]int32{}, Floors: map[Key]int32{}}
	for k, r := range d.records {
		s, has := r.Shares[cluster]
		if s.Room > 0 {
			out.Rooms[k] = s.Room
		}
		if has && r.Min > 0 {
			out.Floors[k] = s.Floor
		}
	}
	return out
}

// Answered processes a worker's Reply to a call, and returns the change that must be stored.
func (d *Division) Answered(cluster, uid string, sent Call, a Reply) Change {
	if a.Epoch != sent.Epoch || a.Number != sent.Number || sent.Incarnation != d.addressed[cluster] {
		return Change{} // it is for a call of another leader, or an earlier call
	}
	before := d.said[cluster]
	d.said[cluster] = &a
	out := Change{Records: map[Key]Record{}}
	confirm := func(k Key, r Record) {
		h, known := a.of(k)
		if !known {
			return
		}
		next := r.Confirm(cluster, uid, sent.Rooms[k], h)
		if before != nil && next.Equal(r) {
			if was, knew := before.of(k); knew && was == h {
				return // nothing has changed
			}
		}
		out.Records[k] = next
	}
	for k := range a.Holdings {
		confirm(k, d.records[k])
	}
	for k, r := range d.records {
		if _, has := r.Shares[cluster]; has {
			confirm(k, r)
		}
	}
	return d.divide(out)
}

// Away records that a cluster does not respond. It keeps its rooms and gets no more.
func (d *Division) Away(cluster string) { delete(d.said, cluster) }

// Answering reports whether a cluster responds.
func (d *Division) Answering(cluster string) bool {
	_, answered := d.said[cluster]
	return answered
}

// Settle applies Record.Settle and Record.Reclaim to all records. registered maps names of clusters to their kube-system uids; reclaimed
// are the names whose lost shares are dropped. If all is true, every group is divided again, otherwise only those that changed.
func (d *Division) Settle(registered map[string]string, reclaimed []string, all bool) Change {
	out := Change{Records: map[Key]Record{}}
	for k, r := range d.records {
		next := r.Settle(registered)
		for _, cluster := range reclaimed {
			next = next.Reclaim(cluster)
		}
		if all || !next.Equal(r) {
			out.Records[k] = next
		}
	}
	return d.divide(out)
}

// divide divides each record, and removes the unchanged ones from the change.
func (d *Division) divide(c Change) Change {
	for k, r := range c.Records {
		if d.Warm {
			var others Others
			if d.Others != nil {
				others = d.Others(k, d.Answering)
			}
			r = r.Divide(d.seen(k, r), others, d.Lost)
		}
		if r.Equal(d.records[k]) {
			delete(c.Records, k)
		} else {
			c.Records[k] = r
		}
	}
	return c
}

// seen returns the reports of the responding clusters about a group.
func (d *Division) seen(k Key, r Record) map[string]Holding {
	out := map[string]Holding{}
	for cluster := range r.Shares {
		if a := d.said[cluster]; a != nil {
			if h, known := a.of(k); known {
				out[cluster] = h
			}
		}
	}
	return out
}

// Records returns all records. The caller must not modify them.
func (d *Division) Records() map[Key]Record { return d.records }
