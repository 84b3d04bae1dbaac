// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"container/list"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
)

const (
	// maxWrites is how many claims are written concurrently. More would not be faster, and might take longer than a write's timeout.
	maxWrites = 320
	// maxWritesIn is how many of them may be in one namespace, whose writes may hang alone, as in an admission webhook. A smaller number costs
	// the API server and etcd more processor time per write, because they batch such writes.
	maxWritesIn = 256
	// maxSilence is how long the API server may confirm no write in a namespace before the claims that wait for a slot there are refused.
	maxSilence = 7 * time.Second
)

// writes holds the claims that are being written, and those that wait for a slot. The team with the fewest writes goes first, and a team's
// claims go in order.
type writes struct {
	clock clock.Clock

	mu         sync.Mutex
	active     int
	waiting    int
	namespaces map[string]*namespaceWrites // those with a claim
}

type namespaceWrites struct {
	name      string
	active    int
	waiting   int
	confirmed time.Time              // the API server's last response, initially the time of the first claim
	teams     map[string]*teamWrites // those with a claim
}

type teamWrites struct {
	name    string
	active  int
	waiting list.List // of *writeSlot
}

// writeSlot is the slot of one claim, or its place among the waiting ones.
type writeSlot struct {
	namespace *namespaceWrites
	team      *teamWrites
	place     *list.Element // while it waits
	granted   chan struct{} // closed once the claim may be written
}

func newWrites(on clock.Clock) *writes {
	return &writes{clock: on, namespaces: map[string]*namespaceWrites{}}
}

// begin waits for a slot to write a claim. It returns the slot, or an error if the claim may not be written.
func (w *writes) begin(ctx context.Context, o *op) (*writeSlot, error) {
	s := w.enter(o.claim.Pool.Namespace, o.tenant.team)
	for {
		wait, err := w.poll(s, o.deadline)
		if err != nil {
			return nil, err
		}
		if wait == 0 {
			return s, nil
		}
		timer := w.clock.NewTimer(wait)
		select {
		case <-s.granted:
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			w.leave(s)
			return nil, disposition.Refuse(problem.NoCapacity, "the claim was canceled")
		}
		timer.Stop()
	}
}

func (w *writes) enter(namespace, team string) *writeSlot {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.namespaces[namespace]
	if n == nil {
		n = &namespaceWrites{name: namespace, confirmed: w.clock.Now(), teams: map[string]*teamWrites{}}
		w.namespaces[namespace] = n
	}
	t := n.teams[team]
	if t == nil {
		t = &teamWrites{name: team}
		n.teams[team] = t
	}
	s := &writeSlot{namespace: n, team: t, granted: make(chan struct{})}
	s.place = t.waiting.PushBack(s)
	n.waiting++
	w.waiting++
	if n.waiting == 1 && w.hasRoom(n) {
		w.grant(s)
	}
	return s
}

// poll returns how long a waiting claim waits until it looks again, or 0 if it has its slot. The error says why it must not wait longer.
func (w *writes) poll(s *writeSlot, deadline time.Time) (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	if s.place != nil {
		w.grantFree(now)
	}
	switch {
	case s.place == nil:
		return 0, nil
	case !now.Before(deadline):
		w.drop(s)
		return 0, disposition.Refuse(problem.Deadline, "others were written first, at most %d at a time", maxWritesIn)
	case s.namespace.isSilent(now):
		w.drop(s)
		return 0, disposition.Refuse(problem.Unavailable, "the API server has confirmed no claim in namespace %s for %s",
			s.namespace.name, maxSilence)
	}
	return min(deadline.Sub(now), s.namespace.confirmed.Add(maxSilence).Sub(now)), nil
}

// done frees the slot of a claim after its write. confirmed reports whether the API server has responded.
func (w *writes) done(s *writeSlot, confirmed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free(s, confirmed)
}

// leave gives up the slot, or the place, of a claim that is not written.
func (w *writes) leave(s *writeSlot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.place == nil {
		w.free(s, false)
	} else {
		w.drop(s)
	}
}

func (w *writes) free(s *writeSlot, confirmed bool) {
	now := w.clock.Now()
	if confirmed {
		s.namespace.confirmed = now
	}
	s.team.active--
	s.namespace.active--
	w.active--
	w.forget(s)
	w.grantFree(now)
}

// drop removes a waiting claim.
func (w *writes) drop(s *writeSlot) {
	w.unqueue(s)
	w.forget(s)
}

func (w *writes) unqueue(s *writeSlot) {
	s.team.waiting.Remove(s.place)
	s.place = nil
	s.namespace.waiting--
	w.waiting--
}

// forget removes a team and a namespace that have no claims left.
func (w *writes) forget(s *writeSlot) {
	n, t := s.namespace, s.team
	if t.active == 0 && t.waiting.Len() == 0 {
		delete(n.teams, t.name)
	}
	if len(n.teams) == 0 {
		delete(w.namespaces, n.name)
	}
}

// grantFree assigns free slots to waiting claims. It assigns none in a namespace without responses, because the claims that wait there are
// about to be refused.
func (w *writes) grantFree(now time.Time) {
	for w.waiting > 0 && w.active < maxWrites {
		var next *teamWrites
		for _, n := range w.namespaces {
			if n.waiting == 0 || !w.hasRoom(n) || n.isSilent(now) {
				continue
			}
			for _, t := range n.teams {
				if t.waiting.Len() > 0 && (next == nil || t.active < next.active) {
					next = t
				}
			}
		}
		if next == nil {
			return
		}
		s, _ := next.waiting.Front().Value.(*writeSlot)
		w.grant(s)
	}
}

func (w *writes) grant(s *writeSlot) {
	w.unqueue(s)
	s.team.active++
	s.namespace.active++
	w.active++
	close(s.granted)
}

func (w *writes) hasRoom(n *namespaceWrites) bool {
	return w.active < maxWrites && n.active < maxWritesIn
}

func (n *namespaceWrites) isSilent(now time.Time) bool { return now.Sub(n.confirmed) >= maxSilence }
