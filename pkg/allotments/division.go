// SPDX-License-Identifier: Apache-2.0

package allotments

import "maps"

// Division is what the hub's leader knows. Each of its changes must be stored before Apply, and what follows from it before it is sent.
// It is not safe for concurrent use.
type Division struct {
	// Epoch is the leader's.
	Epoch uint64
	// Warm: clusters had the time to answer. Before that nothing is divided, so that the first to answer does not get all.
	Warm bool
	// Others returns what is known of clusters that have not answered; nil: nothing.
	Others func(k Key, answered func(cluster string) bool) Others
	// Lost tells which clusters get no claims, whether they respond or not; nil: none.
	Lost func(cluster string) bool

	number    uint64
	books     map[Key]Book
	addressed map[string]uint64 // incarnations by cluster
	said      map[string]*Answer
}

// Change is what has to be stored.
type Change struct {
	// Books are changed; an empty one is removed.
	Books map[Key]Book
	// Addressed are the incarnations that rooms may be sent to from now on.
	Addressed map[string]uint64
}

// None reports whether nothing has to be stored.
func (c Change) None() bool { return len(c.Books)+len(c.Addressed) == 0 }

// NewDivision continues what is stored.
func NewDivision(epoch uint64, books map[Key]Book, addressed map[string]uint64) *Division {
	return &Division{Epoch: epoch, books: maps.Clone(books), addressed: maps.Clone(addressed), said: map[string]*Answer{}}
}

// Apply takes over what was stored.
func (d *Division) Apply(c Change) {
	for k, b := range c.Books {
		if b.Empty() {
			delete(d.books, k)
		} else {
			d.books[k] = b
		}
	}
	maps.Copy(d.addressed, c.Addressed)
}

// Address returns what has to be stored before rooms are sent to an incarnation.
func (d *Division) Address(cluster string, incarnation uint64) Change {
	if d.addressed[cluster] == incarnation {
		return Change{}
	}
	return Change{Addressed: map[string]uint64{cluster: incarnation}}
}

// Call returns the rooms of a cluster, to be sent to the incarnation that was addressed. A cluster has one call at a time.
func (d *Division) Call(cluster string) Call {
	d.number++
	out := Call{Epoch: d.Epoch, Number: d.number, Incarnation: d.addressed[cluster], Rooms: map[Key]int32{}, Floors: map[Key]int32{}}
	for k, b := range d.books {
		s, has := b.Shares[cluster]
		if s.Room > 0 {
			out.Rooms[k] = s.Room
		}
		if has && b.Min > 0 {
			out.Floors[k] = s.Floor
		}
	}
	return out
}

// Answered takes the answer to a call, and returns what has to be stored for it.
func (d *Division) Answered(cluster, uid string, sent Call, a Answer) Change {
	if a.Epoch != sent.Epoch || a.Number != sent.Number || sent.Incarnation != d.addressed[cluster] {
		return Change{} // it follows another leader, or a later call
	}
	before := d.said[cluster]
	d.said[cluster] = &a
	out := Change{Books: map[Key]Book{}}
	confirm := func(k Key, b Book) {
		h, known := a.of(k)
		if !known {
			return
		}
		next := b.Confirm(cluster, uid, sent.Rooms[k], h)
		if before != nil && next.Equal(b) {
			if was, knew := before.of(k); knew && was == h {
				return // nothing is new
			}
		}
		out.Books[k] = next
	}
	for k := range a.Holdings {
		confirm(k, d.books[k])
	}
	for k, b := range d.books {
		if _, has := b.Shares[cluster]; has {
			confirm(k, b)
		}
	}
	return d.divide(out)
}

// Away notes that a cluster does not respond: it keeps what it has, and gets no more.
func (d *Division) Away(cluster string) { delete(d.said, cluster) }

// Answering reports whether a cluster responds.
func (d *Division) Answering(cluster string) bool {
	_, answered := d.said[cluster]
	return answered
}

// Settle compares with the clusters that are registered, by name: the kube-system uid; and gives up what was lost with clusters. With all,
// every group is divided anew; otherwise those that have changed.
func (d *Division) Settle(registered map[string]string, reclaimed []string, all bool) Change {
	out := Change{Books: map[Key]Book{}}
	for k, b := range d.books {
		next := b.Settle(registered)
		for _, cluster := range reclaimed {
			next = next.Reclaim(cluster)
		}
		if all || !next.Equal(b) {
			out.Books[k] = next
		}
	}
	return d.divide(out)
}

// divide divides each of the books, and drops those that stay as they are.
func (d *Division) divide(c Change) Change {
	for k, b := range c.Books {
		if d.Warm {
			var others Others
			if d.Others != nil {
				others = d.Others(k, d.Answering)
			}
			b = b.Divide(d.seen(k, b), others, d.Lost)
		}
		if b.Equal(d.books[k]) {
			delete(c.Books, k)
		} else {
			c.Books[k] = b
		}
	}
	return c
}

// seen returns what the clusters that respond said of a group.
func (d *Division) seen(k Key, b Book) map[string]Holding {
	out := map[string]Holding{}
	for cluster := range b.Shares {
		if a := d.said[cluster]; a != nil {
			if h, known := a.of(k); known {
				out[cluster] = h
			}
		}
	}
	return out
}

// Books returns all books. They must not be changed.
func (d *Division) Books() map[Key]Book { return d.books }

// Said returns what a cluster said of a group last, if it responds.
func (d *Division) Said(cluster string, k Key) (Holding, bool) {
	if a := d.said[cluster]; a != nil {
		return a.of(k)
	}
	return Holding{}, false
}
