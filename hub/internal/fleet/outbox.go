// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"sync"
	"time"
)

// outbox records which state of other clusters one stream must still be sent. It is no queue: it holds which parts have changed, not how
// often or into what. So it is bounded by the receiver's Envs times the clusters that share them (I10).
type outbox struct {
	wake token

	mu       sync.Mutex
	opened   bool
	since    time.Duration         // when it was opened
	complete map[*cluster]struct{} // clusters of which the receiver gets all segments
	dirty    map[*slot][]*cluster  // parts of which the receiver gets the content at the time of sending
	hurry    bool                  // at least one dirty part is urgent
}

func (o *outbox) init() { o.wake = newToken() }

// token wakes one goroutine. It is a channel with room for one value.
type token chan struct{}

func newToken() token { return make(token, 1) }

// give puts the token, unless it is there already.
func (t token) give() {
	select {
	case t <- struct{}{}:
	default:
	}
}

// open starts the receiver's feed with all segments of every known cluster. Before that, no changes are recorded, because the feed reads
// everything.
func (o *outbox) open(receiver *cluster) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opened, o.since = true, receiver.fleet.now()
	o.complete = map[*cluster]struct{}{}
	o.dirty = map[*slot][]*cluster{}
	for _, c := range receiver.fleet.sorted() {
		if c != receiver && c.known.Load() {
			o.complete[c] = struct{}{}
		}
	}
	o.wake.give()
}

func (o *outbox) openedAt() (time.Duration, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since, o.opened
}

// queueComplete queues all segments of a cluster.
func (o *outbox) queueComplete(c *cluster) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opened {
		o.complete[c] = struct{}{}
		o.wake.give()
	}
}

// mark marks a part as dirty and reports whether to wake the receiver. It does not wake the receiver itself: a caller that marks many Envs
// wakes it at the end; because otherwise the first Env would be sent alone and the others a pause later. A receiver that already waits
// until it may send dirty parts need not wake for more of them: with a thousand streams, those wake-ups would be most of a report's cost.
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

// woken is the set of receivers to wake once a report is in the view.
type woken map[*outbox]struct{}

func (w woken) up() {
	for o := range w {
		o.wake.give()
	}
}

// drop removes an Env that the receiver no longer has; because a receiver that does not read would otherwise collect the names of all Envs
// that ever existed.
func (o *outbox) drop(s *slot) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.dirty, s)
}

// wantsComplete reports whether to call takeComplete. For the first message after open it is true even without such clusters, so that the
// receiver learns that it has everything.
func (o *outbox) wantsComplete(first bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opened && (len(o.complete) > 0 || first)
}

// takeComplete removes and returns the clusters of which the receiver must get all segments.
func (o *outbox) takeComplete() map[*cluster]struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	complete := o.complete
	o.complete = map[*cluster]struct{}{}
	return complete
}

// takeDirty removes and returns the changed parts of up to n Envs.
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

func (o *outbox) has() (dirty, hurry, complete bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.dirty) > 0, o.hurry, len(o.complete) > 0
}

func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.complete)
	for _, about := range o.dirty {
		n += len(about)
	}
	return n
}
