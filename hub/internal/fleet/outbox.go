// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"sync"
	"time"
)

// outbox notes what one stream has yet to be sent about other clusters. It is no queue: it holds which parts have changed, not
// how often or into what, so it is bounded by the Envs that the receiver has, times the clusters that share them (I10).
type outbox struct {
	wake chan struct{} // one token

	mu     sync.Mutex
	opened bool
	since  time.Duration         // when it was opened
	owed   map[*cluster]struct{} // the receiver gets everything of these
	dirty  map[*slot][]*cluster  // the receiver gets their content as of when it is sent
	hurry  bool                  // at least one of them is urgent
}

func (o *outbox) init() { o.wake = make(chan struct{}, 1) }

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// open starts the receiver's feed with everything of every known cluster. Until then nothing is noted, because everything will be
// read.
func (o *outbox) open(receiver *cluster) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opened, o.since = true, receiver.fleet.now()
	o.owed = map[*cluster]struct{}{}
	o.dirty = map[*slot][]*cluster{}
	for _, c := range receiver.fleet.sorted() {
		if c != receiver && c.known.Load() {
			o.owed[c] = struct{}{}
		}
	}
	o.signal()
}

func (o *outbox) openedAt() (time.Duration, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since, o.opened
}

func (o *outbox) owe(c *cluster) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opened {
		o.owed[c] = struct{}{}
		o.signal()
	}
}

// mark does not wake the receiver: a caller that marks many Envs wakes it at the end; because otherwise the first Env would be
// sent alone, and the others a pause later. It reports whether to wake the receiver: a receiver that already waits until it may
// send dirty parts learns nothing from more of them, and with a thousand streams those wake-ups would be most of a report's cost.
func (o *outbox) mark(s *slot, about *cluster, at noted) (news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.opened {
		return false
	}
	news = len(o.dirty) == 0 || at == notedUrgent && !o.hurry
	o.hurry = o.hurry || at == notedUrgent
	if marked := o.dirty[s]; !slices.Contains(marked, about) {
		o.dirty[s] = append(marked, about)
	}
	return news
}

// woken are the receivers to wake once a report is in the view.
type woken map[*outbox]struct{}

func (w woken) up() {
	for o := range w {
		o.signal()
	}
}

// drop removes an Env that the receiver no longer has; because a receiver that does not read would otherwise collect the names of
// all Envs that ever existed.
func (o *outbox) drop(s *slot) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.dirty, s)
}

// isOwed reports whether there is something for takeOwed. The first time after open there is even if it is empty, so that the receiver
// learns that it has got everything.
func (o *outbox) isOwed(first bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opened && (len(o.owed) > 0 || first)
}

// takeOwed takes the clusters of which the receiver is to be told everything.
func (o *outbox) takeOwed() map[*cluster]struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	owed := o.owed
	o.owed = map[*cluster]struct{}{}
	return owed
}

// takeDirty takes the changed parts of up to n Envs.
func (o *outbox) takeDirty(n int) []reference {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []reference
	for s, about := range o.dirty {
		if n--; n < 0 {
			break
		}
		for _, c := range about {
			out = append(out, reference{s, c})
		}
		delete(o.dirty, s)
	}
	if len(o.dirty) == 0 {
		o.dirty = map[*slot][]*cluster{} // a map keeps the memory of its largest size
		o.hurry = false
	}
	return out
}

func (o *outbox) has() (dirty, hurry, owed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.dirty) > 0, o.hurry, len(o.owed) > 0
}

func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.owed)
	for _, about := range o.dirty {
		n += len(about)
	}
	return n
}
