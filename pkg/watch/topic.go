// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sort"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/validate"
)

// Scope selects the sandboxes of a topic. An empty field selects all.
type Scope struct{ Namespace, Team string }

// Covers reports whether a sandbox is in the Scope.
func (s Scope) Covers(sandbox *sandboxv1.Sandbox) bool {
	return (s.Namespace == "" || s.Namespace == sandbox.GetNamespace()) && (s.Team == "" || s.Team == sandbox.GetTeam())
}

const (
	// maxEnded is the number of ended sandboxes that a copy keeps.
	maxEnded = 1024
	// itemBytes is the size of a sandbox in a copy, in addition to its message.
	itemBytes = 512
	// slack is how many stale entries a log may have, in addition to one per item.
	slack = 64
)

// item is a sandbox in a copy.
type item struct {
	sandbox  *sandboxv1.Sandbox // replaced, never modified
	cluster  string
	size     int
	revision uint64    // of its last change
	born     uint64    // revision at which it first appeared
	gone     bool      // the sandbox has ended; sandbox is its record
	heard    time.Time // when this state was received
	recalled bool      // not received from a feed yet
}

// entry is a change in the log. It is stale if its item has changed again or was dropped.
type entry struct {
	revision uint64
	of       *item
}

func (e entry) stale() bool { return e.of.revision != e.revision }

// topic is a copy of the sandboxes in a Scope.
type topic struct {
	service *Service
	scope   Scope
	copyID  uint64
	ended   context.Context
	end     context.CancelFunc

	mu         sync.Mutex
	revision   uint64
	items      map[string]*item
	log        []entry // in the order of revisions
	endedItems []entry // of ended sandboxes, oldest first
	nEnded     int     // ended sandboxes in items
	horizon    uint64  // the highest revision of a dropped record of an ended sandbox
	members    map[string]*member
	listed     bool          // members contains every cluster
	changed    chan struct{} // closed by the next change
	users      int
	idle       time.Time // since when the topic has no watches
}

func newTopic(s *Service, scope Scope) *topic {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	t := &topic{
		service: s, scope: scope, copyID: binary.BigEndian.Uint64(id[:]),
		items: map[string]*item{}, members: map[string]*member{}, changed: make(chan struct{}),
	}
	t.ended, t.end = context.WithCancel(context.Background())
	return t
}

// tell wakes all watches. The caller holds the lock.
func (t *topic) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// put stores a sandbox, unless its cluster has left. It reports false if the budget is exhausted.
func (t *topic) put(cluster string, m *member, s *sandboxv1.Sandbox) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.members[cluster] != m {
		return true
	}
	if it := t.items[s.GetId()]; it != nil && !it.gone && !it.recalled && proto.Equal(it.sandbox, s) {
		return true
	}
	return t.place(cluster, s, t.service.clock.Now(), false)
}

// place stores a new state of a sandbox. The caller holds the lock.
func (t *topic) place(cluster string, s *sandboxv1.Sandbox, heard time.Time, recalled bool) bool {
	if !t.scope.Covers(s) {
		return true
	}
	it := t.items[s.GetId()]
	size := proto.Size(s) + itemBytes
	before := 0
	if it != nil {
		before = it.size
	}
	if !t.service.budget.take(cluster, size-before) {
		return false
	}
	if it == nil {
		it = &item{cluster: cluster}
		t.items[s.GetId()] = it
	}
	it.heard, it.recalled = heard, recalled
	t.change(it, s, size)
	if it.gone || it.born == 0 {
		if it.gone {
			t.nEnded--
		}
		it.gone, it.born = false, it.revision
	}
	return true
}

// markEnded marks a sandbox as ended. record may contain only its id.
func (t *topic) markEnded(record *sandboxv1.Sandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.items[record.GetId()]
	if it == nil || it.gone {
		return
	}
	if record.GetNamespace() == "" || !t.scope.Covers(record) {
		record = it.sandbox
	}
	size := proto.Size(record) + itemBytes
	if !t.service.budget.take(it.cluster, size-it.size) {
		record, size = it.sandbox, it.size
	}
	t.change(it, record, size)
	it.gone = true
	t.endedItems = append(t.endedItems, entry{it.revision, it})
	for t.nEnded++; t.nEnded > maxEnded; {
		t.dropOldestEnded()
	}
}

// change gives an item a new state and revision. The caller holds the lock.
func (t *topic) change(it *item, s *sandboxv1.Sandbox, size int) {
	t.revision++
	it.sandbox, it.size, it.revision = s, size, t.revision
	t.log = append(t.log, entry{t.revision, it})
	if len(t.log) > 2*len(t.items)+slack {
		t.log = slices.DeleteFunc(t.log, entry.stale)
		t.endedItems = slices.DeleteFunc(t.endedItems, entry.stale)
	}
	t.tell()
}

// dropOldestEnded drops the oldest record of an ended sandbox. The caller holds the lock.
func (t *topic) dropOldestEnded() {
	first := t.endedItems[0]
	t.endedItems = t.endedItems[1:]
	if first.stale() {
		return
	}
	t.nEnded--
	t.horizon = first.revision
	t.drop(first.of)
}

// drop removes an item. The caller holds the lock.
func (t *topic) drop(it *item) {
	delete(t.items, it.sandbox.GetId())
	t.service.budget.give(it.cluster, it.size)
	it.revision = 0 // makes its entries stale
}

// markMissing marks the sandboxes of a cluster as ended that are not in the set.
func (t *topic) markMissing(cluster string, there map[string]struct{}) {
	t.mu.Lock()
	var gone []*sandboxv1.Sandbox
	for id, it := range t.items {
		if _, ok := there[id]; !ok && it.cluster == cluster && !it.gone {
			gone = append(gone, it.sandbox)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(gone, compareIDs)
	for _, s := range gone {
		t.markEnded(s)
	}
}

// look is a watch's view of a topic at one moment. If it is settled and has no changes, the watch has been sent everything.
type look struct {
	changes []item                 // oldest first
	ages    []*durationpb.Duration // ages of these sandboxes; nil: up to date
	away    []string               // clusters whose sandboxes may be stale
	settled bool                   // every selected cluster is settled
	horizon uint64                 // ends up to this revision may be missing in changes
	next    <-chan struct{}
}

// since returns at most `most` changes after a revision, the state of the selected clusters, and a channel that the next change closes.
func (t *topic) since(revision uint64, most int, named func(cluster string) bool) (l look) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.next, l.horizon = t.changed, t.horizon
	l.away, l.settled = t.away(named)
	at := sort.Search(len(t.log), func(i int) bool { return t.log[i].revision > revision })
	for _, e := range t.log[at:] {
		if len(l.changes) == most {
			break
		}
		if !e.stale() {
			l.changes = append(l.changes, *e.of)
			l.ages = append(l.ages, t.age(e.of))
		}
	}
	return l
}

// position is the current position of a copy.
type position struct {
	copyID, revision, horizon uint64
}

func (t *topic) position() position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return position{t.copyID, t.revision, t.horizon}
}

// run follows every cluster until the topic ends.
func (t *topic) run() {
	defer t.release()
	var following sync.WaitGroup
	defer following.Wait()
	ticker := t.service.clock.NewTicker(reviewEvery)
	defer ticker.Stop()
	for {
		t.review(&following)
		select {
		case <-ticker.C():
			t.service.sweep()
		case <-t.ended.Done():
			return
		}
	}
}

// review starts to follow new clusters, and stops following those that are gone.
func (t *topic) review(following *sync.WaitGroup) {
	silent := map[string]bool{}
	for _, cluster := range t.service.source.Clusters() {
		silent[cluster] = t.service.source.Away(cluster)
	}
	for _, cluster := range t.update(silent, following) {
		t.markMissing(cluster, nil)
	}
}

func (t *topic) update(silent map[string]bool, following *sync.WaitGroup) (left []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := !t.listed
	t.listed = true
	for cluster, away := range silent {
		m := t.members[cluster]
		if m == nil {
			ctx, leave := context.WithCancel(t.ended)
			m = &member{leave: leave}
			t.members[cluster] = m
			following.Go(func() { t.follow(ctx, cluster, m) })
		}
		if m.silent != away {
			m.note(t.service.clock.Now(), m.current, away)
			changed = true
		}
	}
	for cluster, m := range t.members {
		if _, there := silent[cluster]; !there {
			m.leave()
			delete(t.members, cluster)
			left = append(left, cluster)
			changed = true
		}
	}
	if changed {
		t.tell()
	}
	return left
}

// release returns the copy's budget.
func (t *topic) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.members {
		m.leave()
	}
	for _, it := range t.items {
		t.service.budget.give(it.cluster, it.size)
	}
	clear(t.items)
	t.log, t.endedItems = nil, nil
}

func compareIDs(a, b *sandboxv1.Sandbox) int {
	switch {
	case a.GetId() < b.GetId():
		return -1
	case a.GetId() > b.GetId():
		return 1
	}
	return 0
}

// owns reports whether an id was created by the cluster (I15).
func owns(cluster, id string) bool {
	from, ok := validate.ClusterOf(id)
	return ok && from == cluster
}
