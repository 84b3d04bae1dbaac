// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"iter"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/allowed"
	"navix.sh/atoll/worker/internal/memory"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// lagLimit bounds how long events older than a live read are ignored.
	lagLimit = 30 * time.Second
	// These bound the memory of disowned sandboxes.
	disownedMemory = 10 * time.Minute
	maxDisowned    = 100_000
)

// View is the read-only part of a State.
type View struct {
	term
	trail
	clock    clock.PassiveClock
	pools    map[types.NamespacedName]*Pool
	envs     map[types.NamespacedName]allowed.Lists // of Envs that allow something
	pods     map[types.UID]*Pod
	nodes    map[string]*node
	byID     map[string]*Pod
	byKey    map[string][]*Pod
	disowned *memory.Map[struct{}]
}

// State is the index over Pods. It does no locking itself: only Update gives access to it.
type State struct {
	View
	inventory *Inventory
	changes   []Change           // not passed to the observers yet
	touched   map[*Pool]struct{} // to be announced
	after     []func()           // to be called after the lock is released
}

func newState(i *Inventory) State {
	return State{
		View: View{
			term: term{lease: i.opts.Lease}, trail: trail{lagging: map[types.UID]time.Time{}}, clock: i.opts.Clock,
			pools: map[types.NamespacedName]*Pool{}, envs: map[types.NamespacedName]allowed.Lists{}, pods: map[types.UID]*Pod{},
			nodes: map[string]*node{},
			byID:  map[string]*Pod{}, byKey: map[string][]*Pod{}, disowned: memory.New[struct{}](disownedMemory, maxDisowned, nil),
		},
		inventory: i, touched: map[*Pool]struct{}{},
	}
}

// Pod is one Pod of a pool.
type Pod struct {
	object  *corev1.Pod
	version uint64
	pool    *Pool
	place   place
	taken   bool   // a claim holds it
	failed  bool   // the last claim's write on it failed
	id      string // of its sandbox
	keyHash string // of its claim key
	// lostVersion is the version at which a claim failed on the Pod although it looked claimable.
	lostVersion uint64

	// Events with a version below floor are older than a live read of this Pod.
	floor      uint64
	floorUntil time.Time
	top        uint64 // the highest version seen of it
	missing    bool   // a live read did not find it
	// released is the termination for which this process deletes the Pod at version releasedAt, or nil.
	released   *sandbox.Termination
	releasedAt uint64

	// Ending counts the writes under way that end its sandbox. Executing counts the commands that the API server may run in it.
	Ending, Executing int
}

// Object returns the Pod as last seen. It is shared and must not be modified.
func (p *Pod) Object() *corev1.Pod { return p.object }

// Pool returns the pool of the Pod.
func (p *Pod) Pool() *Pool { return p.pool }

// Sandbox returns the id of the sandbox on the Pod, or "".
func (p *Pod) Sandbox() string { return p.id }

// KeyHash returns the hash of the sandbox's claim key, or "".
func (p *Pod) KeyHash() string { return p.keyHash }

// Live reports whether a sandbox on the Pod can be used, or will be.
func (p *Pod) Live() bool {
	return sandbox.PhaseOf(p.object).Live() && (p.released == nil || p.object.DeletionTimestamp == nil)
}

// Released returns the termination for which this process deletes the Pod, or nil if there is none or the Pod shows one itself.
func (p *Pod) Released() *sandbox.Termination {
	if p.released == nil || sandbox.HasEnd(p.object) {
		return nil
	}
	return p.released
}

// Current reports whether Object is the newest version of the Pod that was seen.
func (p *Pod) Current() bool { return p.version >= p.top }

// Change is a change of a Pod.
type Change struct {
	Kind ChangeKind
	Pod  *Pod
	// Sandbox is the id that was on the Pod before. Before is the Pod before the change, or nil for a new Pod.
	Sandbox string
	Before  *corev1.Pod
	// View is the Pod as seen now, or nil if it is gone.
	View *corev1.Pod
	// Lost means that the newest version of the Pod no longer shows the sandbox.
	Lost bool
}

// ChangeKind is a kind of Change.
type ChangeKind string

// The kinds.
const (
	Seen ChangeKind = "Seen"
	Gone ChangeKind = "Gone"
	// Unpooled: the Pod of a sandbox has lost both its pool's label and its owner. The State still shows it as before.
	Unpooled ChangeKind = "Unpooled"
)

// SeeEvent handles a view of a Pod from an informer.
func (s *State) SeeEvent(pod *corev1.Pod) { s.see(pod, time.Time{}) }

// SeeLive handles a view of a Pod from a live read or a write. Events may lag behind it.
func (s *State) SeeLive(pod *corev1.Pod) { s.see(pod, s.clock.Now().Add(lagLimit)) }

// see updates the index with a view of a Pod. It ignores events that are older than a live view, until floorUntil.
func (s *State) see(pod *corev1.Pod, floorUntil time.Time) {
	live := !floorUntil.IsZero()
	p := s.pods[pod.UID]
	if sandbox.PoolOf(pod).Name == "" || len(pod.Spec.Containers) == 0 {
		if p != nil && p.id != "" && len(pod.Spec.Containers) > 0 {
			s.changes = append(s.changes, Change{Kind: Unpooled, Pod: p, Sandbox: p.id, Before: p.object, View: pod})
			return
		}
		s.Forget(pod)
		return
	}
	now, version := s.clock.Now(), versionOf(pod)
	if p == nil {
		p = &Pod{}
		s.pods[pod.UID] = p
	}
	s.compare(p, pod, version, now)
	if live && version < p.version || version < p.floor && now.Before(p.floorUntil) {
		return
	}
	if live {
		p.floor, p.floorUntil = version, floorUntil
	}
	change, before := Change{Kind: Seen, Pod: p, Sandbox: p.id, Before: p.object, View: pod}, p.pool
	s.unplace(p)
	p.object, p.version, p.failed = pod, version, false
	if version > p.releasedAt && pod.DeletionTimestamp == nil {
		p.released = nil // another write won over the deletion
	}
	s.place(p)
	change.Lost = change.Sandbox != "" && p.id != change.Sandbox && version >= p.top
	s.changes = append(s.changes, change)
	if before != nil && before != p.pool {
		s.sweepPool(before)
	}
}

// place adds a Pod to every index but pods, and counts it. unplace reverts it.
func (s *State) place(p *Pod) {
	p.pool = s.poolAt(sandbox.PoolOf(p.object))
	p.pool.pods++
	if name := p.object.Spec.NodeName; name != "" {
		s.nodeAt(name).pods[p.object.UID] = p
	}
	p.id, p.keyHash = sandbox.IDOf(p.object), ""
	if p.id != "" {
		p.keyHash = p.object.Labels[v1alpha1.ClaimKeyHashLabelKey]
		s.byID[p.id] = p
		if p.keyHash != "" {
			s.byKey[p.keyHash] = append(s.byKey[p.keyHash], p)
		}
	}
	s.rememberImage(p)
	s.offer(p)
}

// unplace reverts place.
func (s *State) unplace(p *Pod) {
	if p.object == nil {
		return
	}
	s.withdraw(p)
	p.pool.pods--
	if n := s.nodes[p.object.Spec.NodeName]; n != nil {
		delete(n.pods, p.object.UID)
		s.sweepNode(p.object.Spec.NodeName, n)
	}
	if p.id == "" {
		return
	}
	if s.byID[p.id] == p {
		delete(s.byID, p.id)
	}
	if same := slices.DeleteFunc(s.byKey[p.keyHash], func(o *Pod) bool { return o == p }); len(same) > 0 {
		s.byKey[p.keyHash] = same
	} else {
		delete(s.byKey, p.keyHash)
	}
}

// Forget removes a Pod that no longer exists.
func (s *State) Forget(pod *corev1.Pod) {
	p := s.pods[pod.UID]
	if p == nil {
		return
	}
	delete(s.pods, pod.UID)
	delete(s.lagging, pod.UID)
	s.unplace(p)
	s.changes = append(s.changes, Change{Kind: Gone, Pod: p, Sandbox: p.id, Before: p.object})
	s.sweepPool(p.pool)
}

// Disown remembers for ten minutes a sandbox that no caller has received or will receive. It may still appear.
func (s *State) Disown(id string) { s.disowned.Put(s.clock.Now(), id, struct{}{}) }

// Disowned reports whether a sandbox was disowned, so that no caller gets it.
func (v *View) Disowned(id string) bool {
	_, ok := v.disowned.Get(v.clock.Now(), id)
	return ok
}

// Sandbox returns the Pod that carries a sandbox, or nil.
func (v *View) Sandbox(id string) *Pod { return v.byID[id] }

// Sandboxes returns the Pods that carry sandboxes, by sandbox id. The map must not be modified.
func (v *View) Sandboxes() map[string]*Pod { return v.byID }

// Pod returns the Pod with a UID, or nil for an unknown one.
func (v *View) Pod(uid types.UID) *Pod { return v.pods[uid] }

// WithKey returns the Pods that carry a claim key.
func (v *View) WithKey(hash string) []*Pod { return v.byKey[hash] }

// KeyHashes returns the hashes of all claim keys on Pods.
func (v *View) KeyHashes() iter.Seq[string] { return maps.Keys(v.byKey) }

// Holder returns the Pod that holds a claim key, or nil. If several Pods carry the key, the others end.
func (v *View) Holder(hash string) *Pod {
	var best *Pod
	var bestClaim sandbox.Claim
	for _, p := range v.byKey[hash] {
		if v.Disowned(p.id) {
			continue
		}
		if c := sandbox.Read(p.object).Claim; best == nil || outranks(&c, &bestClaim) {
			best, bestClaim = p, c
		}
	}
	return best
}

// After calls f when the lock has been released.
func (s *State) After(f func()) { s.after = append(s.after, f) }

// tell passes the changes to the observers. It returns the functions to call after the lock is released.
func (s *State) tell(observers []Observer, listeners []func(types.NamespacedName)) []func() {
	for len(s.changes) > 0 {
		changes := s.changes
		s.changes = nil
		for _, c := range changes {
			for _, o := range observers {
				if o.Pod != nil {
					o.Pod(s, c)
				}
			}
		}
	}
	for p := range s.touched {
		for _, o := range observers {
			if o.Pool != nil {
				o.Pool(s, p)
			}
		}
	}
	for p := range s.touched {
		for _, f := range listeners {
			s.After(func() { f(p.key) })
		}
	}
	clear(s.touched)
	after := s.after
	s.after = nil
	return after
}

// compare records whether a view of a Pod lags behind an earlier one.
func (s *State) compare(p *Pod, pod *corev1.Pod, version uint64, now time.Time) {
	s.newest = max(s.newest, version)
	_, known := s.lagging[pod.UID]
	switch {
	case version >= p.top:
		p.top, p.missing = version, false
		delete(s.lagging, pod.UID)
		if s.latest == nil || version > s.latest.top {
			s.latest = p
		}
	case !known:
		s.lagging[pod.UID] = now
	}
}
