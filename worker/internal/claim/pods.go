// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/sandbox"
)

// lagLimit bounds how long events older than a live answer are left aside.
const lagLimit = 30 * time.Second

// pool is what claims need to know of a SandboxPool.
type pool struct {
	key     types.NamespacedName
	env     string
	spec    *v1alpha1.SandboxPoolSpec // the informer's, not to be changed; nil when there is no such pool
	closing bool                      // being deleted
	pods    int
	idle    idleQueue
	waiting waitQueue
	asked   time.Time // when a sandbox was last asked for
	// Whether it had idle Pods, and claims that waited, when last announced.
	stocked, queued bool
}

// entry is one Pod of a pool.
type entry struct {
	pod     *corev1.Pod // shared, not to be changed
	version uint64
	pool    *pool
	place   place
	taken   bool   // a claim is being written on it
	failed  bool   // the last claim of it was not written
	id      string // of its sandbox
	hash    string // of its claim key

	ending    int // ends of its sandbox that are being written
	executing int // see Executing

	// Events below floor are older than a live answer about this Pod.
	floor      uint64
	floorUntil time.Time
	top        uint64 // the highest version seen of it
	missing    bool   // a live read did not find it
	// spoilt is the version at which a claim failed on the Pod though it looked claimable.
	spoilt uint64
}

// node is a Node and the Pods on it.
type node struct {
	object  *corev1.Node
	entries map[types.UID]*entry
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods/resize,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch

// Watch feeds the service from the manager's informers. Call it before the manager starts.
func (s *Service) Watch(ctx context.Context, informers cache.Informers) error {
	for _, w := range []struct {
		object client.Object
		handle toolscache.ResourceEventHandlerFuncs
	}{
		{&v1alpha1.SandboxPool{}, handlers(s.poolSeen, s.poolGone)},
		{&corev1.Node{}, handlers(s.nodeSeen, s.nodeGone)},
		{&corev1.Pod{}, handlers(s.podSeen, s.podGone)},
	} {
		informer, err := informers.GetInformer(ctx, w.object)
		if err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
		registration, err := informer.AddEventHandler(w.handle)
		if err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
		s.mu.Lock()
		s.synced = append(s.synced, registration.HasSynced)
		s.unlock()
	}
	return nil
}

func handlers[T any](seen, gone func(T)) toolscache.ResourceEventHandlerFuncs {
	on := func(object any, f func(T)) {
		if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = missed.Obj
		}
		if o, ok := object.(T); ok {
			f(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { on(o, seen) },
		UpdateFunc: func(_, o any) { on(o, seen) },
		DeleteFunc: func(o any) { on(o, gone) },
	}
}

func (s *Service) podSeen(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.unlock()
	s.see(pod, false)
}

func (s *Service) podGone(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.unlock()
	s.forget(pod)
}

// see takes in a view of a Pod: an event, or a live answer, which events may lag behind. The lock is held.
func (s *Service) see(pod *corev1.Pod, live bool) {
	e := s.pods[pod.UID]
	if sandbox.PoolOf(pod).Name == "" || len(pod.Spec.Containers) == 0 {
		if e != nil && e.id != "" && len(pod.Spec.Containers) > 0 {
			s.nameAgain(pod, e.pool)
			return
		}
		s.forget(pod)
		return
	}
	now := s.opts.Clock.Now()
	version := versionOf(pod)
	s.newest = max(s.newest, version)
	if e == nil {
		e = &entry{}
		s.pods[pod.UID] = e
	}
	s.compare(e, pod, now)
	if live && version < e.version || version < e.floor && now.Before(e.floorUntil) {
		return
	}
	if live {
		e.floor, e.floorUntil = version, now.Add(lagLimit)
	}
	before, had, was := e.pool, e.id, e.pod
	s.unplace(e)
	e.pod, e.version, e.failed = pod, version, false
	s.put(e)
	if had != "" && e.id != had && version >= e.top {
		s.stripped(had, was, e.pool)
	}
	s.follow(had, e)
	s.followTurn(e.id, 0)
	if before != nil && before != e.pool {
		s.sweepPool(before)
	}
}

// put files an entry under everything it is looked up by.
func (s *Service) put(e *entry) {
	e.pool = s.poolAt(sandbox.PoolOf(e.pod))
	e.pool.pods++
	if name := e.pod.Spec.NodeName; name != "" {
		s.nodeAt(name).entries[e.pod.UID] = e
	}
	e.id, e.hash = sandbox.IDOf(e.pod), ""
	if e.id != "" {
		e.hash = e.pod.Labels[v1alpha1.ClaimKeyHashLabelKey]
		s.byID[e.id] = e
		s.waits.Changed(e.id)
		if e.hash != "" {
			s.byKey[e.hash] = append(s.byKey[e.hash], e)
		}
		s.enforce(e)
	}
	s.offer(e)
}

// unplace takes an entry out of everything but pods.
func (s *Service) unplace(e *entry) {
	if e.pod == nil {
		return
	}
	if e.place.queued() {
		e.pool.idle.remove(e)
		s.touch(e.pool)
	}
	e.pool.pods--
	if n := s.nodes[e.pod.Spec.NodeName]; n != nil {
		delete(n.entries, e.pod.UID)
		s.sweepNode(e.pod.Spec.NodeName, n)
	}
	if e.id == "" {
		return
	}
	if s.byID[e.id] == e {
		delete(s.byID, e.id)
		s.waits.Changed(e.id)
	}
	if same := slices.DeleteFunc(s.byKey[e.hash], func(o *entry) bool { return o == e }); len(same) > 0 {
		s.byKey[e.hash] = same
	} else {
		delete(s.byKey, e.hash)
	}
}

// offer gives a Pod that can be handed out to whose turn it is, else it queues it. One of which more was seen before waits
// until that comes again: it may look idle because etcd was set back, and be the one that was handed out last (I1).
func (s *Service) offer(e *entry) {
	if e.taken || e.place.queued() || e.version == e.spoilt || e.version < e.top {
		return
	}
	var on *corev1.Node
	if n := s.nodes[e.pod.Spec.NodeName]; n != nil {
		on = n.object
	}
	if !sandbox.Claimable(e.pod, on).OK() {
		return
	}
	if next := e.pool.waiting.next(); next != nil {
		e.taken = true
		next.handed <- e
	} else {
		e.pool.idle.push(e)
	}
	s.touch(e.pool)
}

// forget drops a Pod that is no more. A sandbox whose end nobody recorded, because the Pod was removed by force, is
// recorded here.
func (s *Service) forget(pod *corev1.Pod) {
	e := s.pods[pod.UID]
	if e == nil {
		return
	}
	delete(s.pods, pod.UID)
	delete(s.lagging, pod.UID)
	id := e.id
	s.unplace(e)
	s.timeouts.Forget(id)
	s.shut(id)
	if id != "" {
		s.vanished(sandbox.TerminalRecord(e.pod, runtimesOf(e.pool), s.opts.ClusterID, s.opts.Time.Now()), sandbox.Read(e.pod))
	}
	s.sweepPool(e.pool)
}

// nameAgain names the pool of a sandbox whose Pod has lost both its label and its owner, so that the pool finds it. Until then
// the sandbox is shown as it was: it has not ended. The lock is held.
func (s *Service) nameAgain(pod *corev1.Pod, p *pool) {
	if s.leading == nil {
		return
	}
	patch, name := sandbox.PoolPatch(pod, p.key.Name), p.key
	s.spawn(func(ctx context.Context) {
		if _, err := s.opts.Pods.patch(ctx, pod, patch); err != nil && judge(err) != lost {
			s.opts.Log.Error(err, "Could not name the pool of a sandbox again", "pod", pod.Name, "pool", name)
		}
	})
}

func (s *Service) nodeSeen(object *corev1.Node) {
	s.mu.Lock()
	defer s.unlock()
	s.setNode(object.Name, object)
}

func (s *Service) nodeGone(object *corev1.Node) {
	s.mu.Lock()
	defer s.unlock()
	s.setNode(object.Name, nil)
}

// setNode looks again at the Pods of a node whose readiness to serve has changed. Most events change nothing about that.
func (s *Service) setNode(name string, object *corev1.Node) {
	n := s.nodeAt(name)
	same := sandbox.NodeServes(n.object) == sandbox.NodeServes(object)
	n.object = object
	if !same {
		for _, e := range n.entries {
			if e.place.queued() && !sandbox.Claimable(e.pod, object).OK() {
				e.pool.idle.remove(e)
				s.touch(e.pool)
			}
			s.offer(e)
		}
	}
	s.sweepNode(name, n)
}

func (s *Service) nodeAt(name string) *node {
	n := s.nodes[name]
	if n == nil {
		n = &node{entries: map[types.UID]*entry{}}
		s.nodes[name] = n
	}
	return n
}

func (s *Service) sweepNode(name string, n *node) {
	if n.object == nil && len(n.entries) == 0 {
		delete(s.nodes, name)
	}
}

func (s *Service) poolSeen(object *v1alpha1.SandboxPool) {
	s.mu.Lock()
	defer s.unlock()
	p := s.poolAt(types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	p.env, p.spec, p.closing = sandbox.EnvOfPool(object), &object.Spec, object.DeletionTimestamp != nil
	if p.closing {
		s.dismiss(p)
	}
	s.touch(p)
}

func (s *Service) poolGone(object *v1alpha1.SandboxPool) {
	s.mu.Lock()
	defer s.unlock()
	p := s.poolAt(types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	p.spec, p.closing = nil, true
	s.dismiss(p)
	s.touch(p)
	s.sweepPool(p)
}

// dismiss refuses everybody who waits for a pool that is on its way out.
func (s *Service) dismiss(p *pool) {
	for next := p.waiting.next(); next != nil; next = p.waiting.next() {
		next.refused <- s.turnAway(p, closing)
	}
}

func (s *Service) poolAt(key types.NamespacedName) *pool {
	p := s.pools[key]
	if p == nil {
		p = &pool{key: key, waiting: newWaitQueue()}
		s.pools[key] = p
	}
	return p
}

func (s *Service) sweepPool(p *pool) {
	if p.spec == nil && p.pods == 0 && p.waiting.len() == 0 {
		delete(s.pools, p.key)
	}
}

func (s *Service) touch(p *pool) { s.touched[p] = struct{}{} }

func runtimesOf(p *pool) []v1alpha1.SandboxRuntimeSpec {
	if p.spec == nil {
		return nil
	}
	return p.spec.Runtimes
}

// versionOf reads a resourceVersion. Those of one cluster are ordered.
func versionOf(pod *corev1.Pod) uint64 {
	n, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
