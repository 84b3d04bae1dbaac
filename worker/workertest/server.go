// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// name identifies an object.
type name struct {
	kind *kind
	types.NamespacedName
}

// server is an API server and its etcd. Objects are replaced and never modified, so that readers need no copies.
type server struct {
	mu      sync.Mutex
	random  *rand.Rand
	objects map[name]client.Object
	version uint64
	uids    uint64
	watches map[*watcher]struct{}
	log     []logged
	// changed is called for every change of a Pod, with the lock held.
	changed func(before, after *corev1.Pod)
}

func newServer(seed uint64) *server {
	return &server{
		random: rand.New(rand.NewPCG(seed, 1)), objects: map[name]client.Object{}, watches: map[*watcher]struct{}{},
		changed: func(_, _ *corev1.Pod) {},
	}
}

// draw returns a random duration below most.
func (s *server) draw(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.random.Int64N(int64(most)))
}

func (s *server) get(n name) client.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[n]
}

// list returns the objects of a kind, ordered by name, and their version.
func (s *server) list(k *kind) ([]client.Object, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listLocked(k), s.version
}

func (s *server) listLocked(k *kind) []client.Object {
	var out []client.Object
	for n, o := range s.objects {
		if n.kind == k {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return out
}

func nameOf(object client.Object) name {
	return name{kindOf(object), types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}}
}

// create stores a new object.
func (s *server) create(object client.Object) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := nameOf(object)
	if s.objects[n] != nil {
		return nil, alreadyExists(n)
	}
	object = copyOf(object)
	s.uids++
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("uid-%d-%d", s.uids, s.version)))
	}
	object.SetGeneration(1)
	object.SetCreationTimestamp(metav1.Now())
	return s.store(n, object), nil
}

// update replaces an object with the result of change on a copy. An object that is being deleted is removed with its last finalizer.
func (s *server) update(n name, change func(client.Object) (client.Object, error)) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[n]
	if before == nil {
		return nil, notFound(n)
	}
	after, err := change(copyOf(before))
	if err != nil {
		return nil, err
	}
	after.SetUID(before.GetUID())
	after.SetGeneration(before.GetGeneration())
	if !sameSpec(before, after) {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	if after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 {
		return s.drop(n, after), nil
	}
	return s.store(n, after), nil
}

// remove deletes an object, or marks it as being deleted while it has finalizers.
func (s *server) remove(n name, want *metav1.Preconditions) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[n]
	if before == nil {
		return nil, notFound(n)
	}
	if want != nil && (want.UID != nil && *want.UID != before.GetUID() ||
		want.ResourceVersion != nil && *want.ResourceVersion != before.GetResourceVersion()) {
		return nil, conflict(n, "the object is not as the precondition wants it")
	}
	after := copyOf(before)
	if len(after.GetFinalizers()) == 0 {
		return s.drop(n, after), nil
	}
	if after.GetDeletionTimestamp() != nil {
		return before, nil
	}
	now := metav1.Now()
	after.SetDeletionTimestamp(&now)
	return s.store(n, after), nil
}

func (s *server) store(n name, object client.Object) client.Object {
	s.version++
	object.SetResourceVersion(strconv.FormatUint(s.version, 10))
	before := s.objects[n]
	s.objects[n] = object
	s.notify(before, object)
	return object
}

func (s *server) drop(n name, object client.Object) client.Object {
	s.version++
	object.SetResourceVersion(strconv.FormatUint(s.version, 10))
	delete(s.objects, n)
	s.notify(object, nil)
	return object
}

// logged is a change that is kept for watches that begin later.
type logged struct {
	version       uint64
	before, after client.Object
}

// logSize bounds the log. A watch from an earlier version must list again.
const logSize = 4096

func (s *server) notify(before, after client.Object) {
	if s.log = append(s.log, logged{s.version, before, after}); len(s.log) > 2*logSize {
		s.log = slices.Clone(s.log[logSize:])
	}
	for w := range s.watches {
		w.add(before, after)
	}
	was, _ := before.(*corev1.Pod)
	is, _ := after.(*corev1.Pod)
	if was != nil || is != nil {
		s.changed(was, is)
	}
}

// image is etcd's content at one moment.
type image struct {
	objects map[name]client.Object
	version uint64
}

func (s *server) backup() image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return image{maps.Clone(s.objects), s.version}
}

// restore restores etcd. Watches end, as on a restarted API server.
func (s *server) restore(i image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects, s.version, s.log = maps.Clone(i.objects), i.version, nil
	for w := range s.watches {
		w.finish()
	}
	clear(s.watches)
}

func copyOf(object client.Object) client.Object {
	return object.DeepCopyObject().(client.Object)
}

// sameSpec compares the fields whose changes increase generation.
func sameSpec(a, b client.Object) bool {
	pod, ok := a.(*corev1.Pod)
	other, same := b.(*corev1.Pod)
	if !ok || !same {
		return true
	}
	return equality.Semantic.DeepEqual(&pod.Spec, &other.Spec)
}
